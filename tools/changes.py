"""What changed in kernel.cuh since the rung that a rung starts from: in which lines, and in how many.

A changed line is one that was replaced, added or removed: in each place where the files differ, the larger of the lines
taken away and the lines put there (GNU diff --minimal, every line of the file, comments included), as `ladder compare` counts, too.
"""
from __future__ import annotations

import functools
import os
import re
import subprocess

from tools import rungs
from tools.rungs import Rung

HUNK = re.compile(r"^(\d+)(?:,(\d+))?([acd])(\d+)(?:,(\d+))?$", re.M)


def diff(before: Rung, rung: Rung, *options: str) -> str:
    paths = [os.path.relpath(each.kernel, rungs.root()) for each in (before, rung)]
    run = subprocess.run(["diff", "--minimal", *options, *paths], cwd=rungs.root(), capture_output=True, text=True)
    if run.returncode > 1:
        raise rungs.RungsError(run.stderr.strip())
    return run.stdout


def hunks(before: Rung, rung: Rung, *options: str) -> list[tuple[range, range]]:
    """Where two kernels differ: lines of the one, lines of the other, from 1."""
    found = []
    for first, last, kind, new_first, new_last in HUNK.findall(diff(before, rung, *options)):
        old = range(int(first), int(last or first) + 1) if kind != "a" else range(int(first) + 1, int(first) + 1)
        new = range(int(new_first), int(new_last or new_first) + 1) if kind != "d" else range(int(new_first) + 1, int(new_first) + 1)
        found.append((old, new))
    return found


def changed_lines(before: Rung, rung: Rung, *options: str) -> int:
    return sum(max(len(old), len(new)) for old, new in hunks(before, rung, *options))


@functools.cache
def since_previous() -> dict[str, tuple[str, int]]:
    """Rung -> the rung that it starts from, and how many lines differ."""
    known = rungs.by_name()
    return {rung.name: (rung.previous, changed_lines(known[rung.previous], rung)) for rung in rungs.known() if rung.previous in known}
