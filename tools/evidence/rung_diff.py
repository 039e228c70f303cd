"""Shows what changed in kernel.cuh since the rung that a rung starts from, and how many lines that is
(tools/changes.py).

Lines that changed in their spacing alone are counted, not shown. A limit does not count those that are gone because the
rung says them as a part of common/words/, and does not hold for a rung whose stage.cu says why it changes more (more_lines):
where an instruction or a problem is new there is another limit, and else none. The first rung starts from nothing.
Exit code: 0 done; 1 a rung exceeds its limit; 2 usage.
"""
from __future__ import annotations

import argparse
import os
import re
import sys

from tools import changes, rungs


def said(rung: rungs.Rung) -> int:
    """How many changed lines fewer it has without those that are gone because it says them: they stand in common/words/."""
    text = rung.kernel.read_text(encoding="utf-8")
    parts = {line.strip() for name in re.findall(r'^#include "(common/words/\w+\.cuh)"', text, re.M)
             for line in (rungs.root() / name).read_text(encoding="utf-8").splitlines()}
    before = rungs.by_name()[rung.previous]
    lines = before.kernel.read_text(encoding="utf-8").splitlines()
    fewer = 0
    for old, new in changes.hunks(before, rung):
        rest = sum(lines[n - 1].strip() not in parts for n in old)
        fewer += max(len(old), len(new)) - max(rest, len(new))
    return fewer


def check_all(most: int, most_new: int) -> int:
    """Prints the count of every rung; 1 if one exceeds its limit, or says why it would and does not."""
    status = 0
    for name, (before, lines) in changes.since_previous().items():
        rung = rungs.by_name()[name]
        parts, more = said(rung), rung.more_lines
        limit = {"": most, "new": most_new}.get(more.why, lines)
        print(f"{name:<16} {lines:3} changed lines since {before}{f', {parts} of them said as parts' if parts else ''}"
              f"{f'; {more.why}: {more.reason}' if more.why else ''}", flush=True)
        fault = (f"{lines - parts} changed lines, more than {limit}: is it one idea that a reader can see? If so, its stage.cu says why, as more_lines"
                 if lines - parts > limit else
                 f"{lines - parts} changed lines, no more than {most}: nothing needs more_lines in its stage.cu" if more.why and lines - parts <= most else "")
        if fault:
            print(f"{name}: {fault}.", file=sys.stderr)
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="rung_diff", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("stage", nargs="?", metavar="STAGE", help="3, 03, kvpipe or 03_kvpipe: show what it changed")
    what.add_argument("--most", type=int, metavar="LINES", help="print the count of every rung, and fail if one exceeds LINES")
    parser.add_argument("--most-new", type=int, metavar="LINES",
                        help="with --most: another limit for a rung that says that an instruction or a problem is new")
    arguments = parser.parse_args()
    try:
        if arguments.most is not None:
            return check_all(arguments.most, arguments.most_new or arguments.most)
        show(rungs.named(arguments.stage))
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
