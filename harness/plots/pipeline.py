#!/usr/bin/env python3
"""Records the order of one warp's work in 02_swizzle and 03_kvpipe for the site's timeline: docs/recorded/pipeline.json, from
`ladder explain STAGE --trace`. With --check nothing is written: exits 1 when the file is not what the program prints."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "docs" / "recorded" / "pipeline.json"
STAGES = ("02_swizzle", "03_kvpipe")
KINDS = {"ld.global": "copy", "st.shared": "copy", "cp.async.16": "request", "cp.async.wait": "wait", "__syncthreads": "barrier",
         "ldmatrix": "multiply", "mma": "multiply", "st.global": "store"}


def steps(events: list[dict]) -> list[list]:
    """What warp 0 does, in its order, equal work in one step: [kind, buffer, instructions]."""
    found: list[list] = []
    for event in events:
        kind = next((kind for start, kind in KINDS.items() if event["instruction"].startswith(start)), None)
        if event["warp"] != 0 or kind is None:
            continue
        buffer = event.get("buffer", "")
        if kind == "multiply" and buffer not in ("K", "V"):  # Q is loaded, or a product is taken, for the step at hand
            buffer = found[-1][1] if found[-1][0] == "multiply" else "K"
        if kind == "wait" or not found or found[-1][:2] != [kind, buffer]:
            found.append([kind, buffer, 0])
        found[-1][2] += 1
    return found


def trace(ladder: Path, stage: str) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        subprocess.run([ladder, "explain", stage, "--n", "256", "--trace", file], check=True, stdout=subprocess.DEVNULL)
        return json.loads(file.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ladder", type=Path, default=ROOT / "build" / "ladder", help="the built program (default: build/ladder)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the file is stale")
    arguments = parser.parse_args()
    try:
        lines = [f'  "{stage}": {json.dumps(steps(trace(arguments.ladder, stage)))}' for stage in STAGES]
        new = "{\n" + ",\n".join(lines) + "\n}\n"
        if not arguments.check:
            RECORD.write_text(new, encoding="utf-8")
        elif RECORD.read_text(encoding="utf-8") != new:
            print(f"{RECORD} is not what {arguments.ladder} prints; run: make plots", file=sys.stderr)
            return 1
    except (OSError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
