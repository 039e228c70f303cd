#!/usr/bin/env python3
"""The traces that the site's player steps through: docs/traces/STAGE.json, written by `ladder explain STAGE --trace`, without
the kernel's text, which the site takes from the kernel itself. Each has the smallest shape with two tiles of keys."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
STAGES = sorted(path.parent.name for path in ROOT.glob("[0-9][0-9]*_*/stage.cu"))
SHAPES = [(16, 16), *((n, 128) for n in (32, 64, 128, 256, 512, 1024))]  # n, d
USAGE = 2  # the stage does not take this shape


def trace(ladder: str, stage: str) -> str:
    for n, d in SHAPES:
        command = [ladder, "explain", stage, "--n", str(n), "--d", str(d), "--trace", "-"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == USAGE:
            continue
        if run.returncode != 0:
            raise SystemExit(f"{' '.join(command)} exits with {run.returncode}:\n{run.stderr}")
        if n >= 2 * json.loads(run.stdout)["tile"]["bc"]:
            return run.stdout.partition(',\n"source": ')[0] + "\n}\n"
    raise SystemExit(f"{stage}: no shape up to {SHAPES[-1]} has two tiles")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ladder", default=str(ROOT / "build" / "ladder"), help="the program to ask")
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if a file differs")
    options = parser.parse_args()
    wrong = []
    for stage in STAGES:
        file, now = ROOT / "docs" / "traces" / f"{stage}.json", trace(options.ladder, stage)
        if options.check and (not file.exists() or file.read_text(encoding="utf-8") != now):
            wrong.append(stage)
        elif not options.check:
            file.write_text(now, encoding="utf-8")
    if wrong:
        sys.exit(f"docs/traces is not what the emulator does today for {', '.join(wrong)}: run docs/traces.py --ladder {options.ladder}")


if __name__ == "__main__":
    main()
