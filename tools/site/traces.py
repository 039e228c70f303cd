"""The traces that the site's player steps through and some drawings are made from: what the first block of a rung does on the emulator, by
`ladder explain STAGE --trace`, for the smallest shape with two tiles of keys. Each is made when it is first asked for, and kept beside
the program until that is built anew; without the kernel's text, which the site takes from the kernel itself."""
from __future__ import annotations

import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools import rungs

SHAPES = [(16, 16), *((n, d) for d in (128, 64, 256, 96) for n in (32, 64, 128, 256, 512, 1024))]  # n, d
USAGE = 2  # the stage does not take this shape


def file_of(rung: rungs.Rung) -> Path:
    program = rungs.program().resolve()
    file = program.parent / "traces" / f"{rung.name}.json"
    if not file.exists() or file.stat().st_mtime <= program.stat().st_mtime:
        file.parent.mkdir(exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False, encoding="utf-8") as made:
            made.write(trace(rung.name))
        os.replace(made.name, file)  # others may ask at the same time
    return file


def files() -> list[Path]:
    """Of all rungs: seconds, where they are not there yet."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(file_of, rungs.known()))


def trace(stage: str) -> str:
    for n, d in SHAPES:
        command = [str(rungs.program()), "explain", stage, "--n", str(n), "--d", str(d), "--trace", "-"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == USAGE:
            continue
        if run.returncode != 0:
            raise rungs.RungsError(f"{' '.join(command)} exits with {run.returncode}:\n{run.stderr}")
        if n >= 2 * json.loads(run.stdout)["tile"]["bc"]:
            return run.stdout.partition(',\n"source": ')[0] + "\n}\n"
    raise rungs.RungsError(f"{stage}: no shape of {SHAPES} has two tiles")
