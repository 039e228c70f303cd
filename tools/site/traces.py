"""The traces that the site's player steps through: tools/site/traces/STAGE.json, written by `ladder explain STAGE
--trace`, without the kernel's text, which the site takes from the kernel itself. Each has the smallest shape with two
tiles of keys."""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from tools import rungs
from tools.paths import SITE

TRACES = SITE / "traces"
SHAPES = [(16, 16), *((n, 128) for n in (32, 64, 128, 256, 512, 1024))]  # n, d
USAGE = 2  # the stage does not take this shape


def file_of(rung: rungs.Rung) -> Path:
    return TRACES / f"{rung.name}.json"


def of_no_rung() -> list[Path]:
    """Traces of rungs that the ladder no longer has."""
    return sorted(set(TRACES.glob("*.json")) - set(map(file_of, rungs.known())))


def trace(stage: str) -> str:
    for n, d in SHAPES:
        command = [str(rungs.program()), "explain", stage, "--n", str(n), "--d", str(d), "--trace", "-"]
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
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if a file differs")
    options = parser.parse_args()
    try:
        known, gone = rungs.known(), of_no_rung()
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    stale = [file.stem for file in gone]
    for rung in known:
        file, now = file_of(rung), trace(rung.name)
        if options.check and (not file.exists() or file.read_text(encoding="utf-8") != now):
            stale.append(rung.name)
        elif not options.check:
            file.write_text(now, encoding="utf-8")
    if options.check and stale:
        sys.exit(f"{TRACES} is not what the emulator does today for {', '.join(stale)}; run: make plots")
    if not options.check:
        for file in gone:
            file.unlink()


if __name__ == "__main__":
    main()
