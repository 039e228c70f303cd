"""What the notebooks of course/notebooks/ say in their cells: a word of ./ladder, what a rung counts, a picture of the book, and
`%%kernel`, a cell of C++ that takes the place of a part of a rung's kernel and is judged by `./ladder try`."""
from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from IPython.core.error import UsageError
from IPython.core.magic import register_cell_magic
from IPython.display import SVG, Markdown

from tools import kernel_parts, rungs
from tools.paths import ROOT

DONE, FAILED, CANNOT_RUN_HERE = 0, 1, 77


def run(*command: str) -> str:
    """What a command prints. Where it cannot run here, its own words, which have the way out."""
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if ran.returncode not in (DONE, FAILED, CANNOT_RUN_HERE) or not ran.stdout and ran.returncode == FAILED:
        raise RuntimeError(f"{shlex.join(command)} ended with {ran.returncode}:\n{ran.stderr}")
    return ran.stdout + (ran.stderr if ran.returncode == CANNOT_RUN_HERE else "")


def ladder(*words: str) -> None:
    """`./ladder WORDS`, as in a terminal."""
    print(run("./ladder", *words), end="")


def traffic(*words: str) -> None:
    """The bytes of a rung over N, by `python3 -m tools.evidence.traffic`."""
    print(run(sys.executable, "-m", "tools.evidence.traffic", *words), end="")


def counted(rung: str, *words: str) -> dict:
    """What the emulator counts of a rung, by name: `./ladder explain RUNG --json -`."""
    return json.loads(run("./ladder", "explain", rung, *words, "--on", "cpu", "--json", "-"))[0]["counters"]


def table(rows: dict[str, dict], columns: list[str]) -> Markdown:
    """A line for each of `rows`, with these of its counts."""
    lines = [["", *(column.replace("_", " ") for column in columns)], ["---", *(["---:"] * len(columns))]]
    lines += [[name, *(f"{row[column]:,}" for column in columns)] for name, row in rows.items()]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def picture(path: str) -> SVG:
    """A drawing of the book, by its path in the repository."""
    return SVG(filename=str(ROOT / path))


def with_part(rung: str, part: str, lines: str) -> str:
    """The rung's kernel with these lines for one of its parts: a function, or what stands from a mark `// SOFTMAX` to the next; `LOAD:2` is
    the second of that name."""
    name, _, which = part.partition(":")
    text = rungs.named(rung).kernel.read_text(encoding="utf-8").splitlines()
    find = kernel_parts.part_lines if name in kernel_parts.PARTS else kernel_parts.function_lines
    try:
        place = find(text, name)[int(which or 1) - 1]
    except (IndexError, ValueError):
        raise UsageError(f"{rung} has no part '{part}'. Parts are functions, and {', '.join(kernel_parts.PARTS)}.") from None
    first = text[place.start - 1]
    margin = first[: len(first) - len(first.lstrip())]
    mine = textwrap.indent(textwrap.dedent(lines), margin, lambda line: not line.startswith("#") and bool(line.strip())).splitlines()
    return "\n".join([*text[: place.start - 1], *mine, *text[place.stop - 1 :]]) + "\n"


@register_cell_magic
def kernel(line: str, cell: str) -> None:
    """%%kernel RUNG PART [flags of ./ladder try]"""
    words = shlex.split(line)
    if len(words) < 2:
        raise UsageError("%%kernel takes a rung and a part of it, as in: %%kernel 02 chunk_offset")
    rung, part, *flags = words
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mine.cuh")
        file.write_text(with_part(rung, part, cell), encoding="utf-8")
        said = run("./ladder", "try", str(file), "--like", rung, *flags)
        print(said.partition("\nCounted on the emulator")[0].replace(f"{file.parent}/", "").replace(f"{file.parent.name}/", "").rstrip())
