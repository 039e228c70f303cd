"""Shows what changed in kernel.cuh since the rung that a rung starts from, and how many lines that is
(tools/changes.py).

Lines that changed in their spacing alone are counted, not shown. A limit does not count those that are gone because the
rung says them as a part of common/words/. The first rung starts from nothing.
Exit code: 0 done; 1 a rung exceeds its limit; 2 usage.
"""
from __future__ import annotations

import argparse
import os
import re
import sys

from tools import changes, rungs


def new_instructions(rung: rungs.Rung) -> set[str]:
    """What it needs of the GPU, and the rung that it starts from does not; memory is no instruction."""
    before = rungs.by_name()[rung.previous]
    return {need for need in rung.needs.split(", ") if need not in before.needs.split(", ") and "memory" not in need}


def told_anew(rung: rungs.Rung) -> bool:
    """Whether its header says that it tells the kernel in other words, so that its lines are not those of its idea."""
    header = (rung.path / "kernel.cuh").read_text(encoding="utf-8").partition("#pragma once")[0]
    return "told anew" in header.lower()


def said(rung: rungs.Rung) -> int:
    """How many changed lines fewer it has without those that are gone because it says them: they stand in common/words/."""
    text = (rung.path / "kernel.cuh").read_text(encoding="utf-8")
    parts = {line.strip() for name in re.findall(r'^#include "(common/words/\w+\.cuh)"', text, re.M)
             for line in (rungs.root() / name).read_text(encoding="utf-8").splitlines()}
    before = rungs.by_name()[rung.previous]
    lines = (before.path / "kernel.cuh").read_text(encoding="utf-8").splitlines()
    fewer = 0
    for old, new in changes.hunks(before, rung):
        rest = sum(lines[n - 1].strip() not in parts for n in old)
        fewer += max(len(old), len(new)) - max(rest, len(new))
    return fewer


def check_all(most: int, most_in: dict[str, int], most_new: int | None) -> int:
    """Prints the count of every rung; 1 if one exceeds its limit."""
    status = 0
    for name, (before, lines) in changes.since_previous().items():
        rung = rungs.by_name()[name]
        limit = most_in.get(rung.name, most_in.get(rung.part, most))
        if most_new is not None and new_instructions(rung):
            limit = max(limit, most_new)
        anew, parts = told_anew(rung), said(rung)
        print(f"{name:<16} {lines:3} changed lines since {before}{f', {parts} of them said as parts' if parts else ''}"
              f"{', told anew' if anew else ''}", flush=True)
        if lines - parts > limit and not anew:
            print(f"  more than {limit}: is it still one idea that a reader can see?", file=sys.stderr)
            status = 1
    return status


def show(rung: rungs.Rung) -> None:
    before = rungs.by_name().get(rung.previous)
    if before is None:
        print(f"{rung.name} is the first rung; there is nothing before it to compare with.")
        return
    is_terminal = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    print(changes.diff(before, rung, "--ignore-all-space", f"--color={'always' if is_terminal else 'never'}", "-U", "3"), end="")
    lines, shown = changes.changed_lines(before, rung), changes.changed_lines(before, rung, "--ignore-all-space")
    spacing = f", {lines - shown} of them by spacing alone (not shown)" if shown < lines else ""
    print(f"{rung.name}: {lines} changed lines since {before.name}{spacing}")


def limit_in_part(text: str) -> tuple[str, int]:
    part, equals, lines = text.partition("=")
    if not (part and equals and lines.isdigit()):
        raise argparse.ArgumentTypeError(f"'{text}' is not PART=LINES")
    return part, int(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="rung_diff", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("stage", nargs="?", metavar="STAGE", help="3, 03, kvpipe or 03_kvpipe: show what it changed")
    what.add_argument("--most", type=int, metavar="LINES", help="print the count of every rung, and fail if one exceeds LINES")
    parser.add_argument("--most-in", type=limit_in_part, action="append", default=[], metavar="PART=LINES",
                        help="with --most: another limit for the rungs of a part, or for one rung")
    parser.add_argument("--most-new", type=int, metavar="LINES",
                        help="with --most: another limit for a rung that needs an instruction which the one it starts from does not")
    arguments = parser.parse_args()
    try:
        if arguments.most is not None:
            return check_all(arguments.most, dict(arguments.most_in), arguments.most_new)
        show(rungs.named(arguments.stage))
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
