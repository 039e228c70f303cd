"""Writes the drawings of chapters and pages: NAME.svg beside each NAME.py that makes one (sketch.py), and in the page
beside it the words that stand in for the picture.

With --check nothing is written: exits 1 when a drawing is older than what it is drawn from.
"""
from __future__ import annotations

import html
import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import rungs
from tools.paths import DOCS, SITE
from tools.site import generated
from tools.site.drawings import DRAWINGS, standing_alone
from tools.site.schemes import SCHEMES
from tools.site.sketch import Sketch

STYLE = SITE / "static" / "drawing.css"


def sources() -> list[Path]:
    """The Python files that each make a drawing."""
    of_rungs = [path for rung in rungs.known() for path in sorted(rung.path.glob("drawing*.py"))]
    return [*of_rungs, *sorted((DOCS / "drawings").glob("*.py"))]


def drawn(source: Path) -> Sketch:
    return runpy.run_path(str(source))["DRAWING"]


def figures() -> dict[Path, str]:
    """The drawings that pages of docs/ share, and their files."""
    style = STYLE.read_text(encoding="utf-8")
    made = {**DRAWINGS, **SCHEMES}
    return {DOCS / "drawings" / f"{name}.svg": standing_alone(make(), style) for name, make in made.items()}


def with_figures(figures: dict[Path, str]) -> dict[Path, str]:
    """The same, and the pages whose images have the titles of these as their words."""
    files = dict(figures)
    for page in DOCS.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        for svg, drawn in figures.items():
            text = described(text, str(svg.relative_to(DOCS)), html.unescape(re.search("<title>(.*?)</title>", drawn)[1]))
        files[page] = text
    return files


def described(text: str, name: str, title: str) -> str:
    """A page in which the image of that name has the drawing's title as its words."""
    return re.sub(rf"!\[[^\]]*\]\({re.escape(name)}\)", lambda _: f"![{title}]({name})", text)


def wanted(source: Path) -> dict[Path, str]:
    """What the files of a drawing should hold."""
    sketch, svg = drawn(source), source.with_suffix(".svg")
    files = {svg: sketch.svg(STYLE.read_text(encoding="utf-8"))}
    for page in (source.parent.glob("*.md") if source.name.startswith("drawing") else DOCS.glob("*.md")):
        files[page] = described(page.read_text(encoding="utf-8"), str(svg.relative_to(page.parent)), sketch.title)
    return files


def made(only: list[Path]) -> Iterator[tuple[Path, str]]:
    for source in map(Path.resolve, only or sources()):
        yield from wanted(source).items()
    if not only:
        yield from with_figures(figures()).items()


def main() -> int:
    parser = generated.parser(__doc__)
    parser.add_argument("only", nargs="*", type=Path, metavar="NAME.py", help="these alone")
    arguments = parser.parse_args()
    return generated.run(arguments, lambda: made(arguments.only))


if __name__ == "__main__":
    sys.exit(main())
