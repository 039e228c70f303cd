"""Where the parts of a kernel stand in its text."""
from __future__ import annotations

import re

PARTS = ("LOAD", "QK", "SOFTMAX", "PV", "STORE")
LAUNCH = "LAUNCH"  # behind them, what the host does


def part_lines(text: list[str], name: str) -> list[range]:
    """Where the parts `// NAME` stand, from 1: each to the next part, or to where its block ends."""
    marks = [(n, line.index("//")) for n, line in enumerate(text, 1) if re.match(rf" *// ({'|'.join((*PARTS, LAUNCH))})\b", line)]
    found = []
    for (start, indent), (stop, _) in zip(marks, [*marks[1:], (len(text) + 1, 0)]):
        if re.match(rf" *// {name}\b", text[start - 1]):
            ends = (n for n in range(start, stop) if text[n - 1].strip() and len(text[n - 1]) - len(text[n - 1].lstrip()) < indent
                    and not text[n - 1].startswith("#"))
            last = next(ends, stop) - 1
            while not text[last - 1].strip():
                last -= 1
            found.append(range(start, last + 1))
    return found


def function_lines(text: list[str], name: str) -> list[range]:
    """A function or a struct at the left margin, with the comment and the template line above it."""
    found = []
    for n, line in enumerate(text, 1):
        if re.match(rf"(\w.*\b{name}\(|struct {name}\b)", line) and not line.endswith(";"):
            first = n
            while text[first - 2].startswith(("//", "template")):
                first -= 1
            found.append(range(first, next(end for end in range(n, len(text) + 1) if text[end - 1] in ("}", "};")) + 1))
    return found
