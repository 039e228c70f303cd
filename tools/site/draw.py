"""Writes the drawings of chapters and pages: NAME.svg beside each NAME.py that makes one (sketch.py), and in the page
beside it the words that stand in for the picture.

With --check nothing is written: exits 1 when a drawing is older than what it is drawn from.
"""
from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import rungs
from tools.paths import DOCS, SITE
from tools.site import generated
from tools.site.drawings import DRAWINGS
from tools.site.schemes import SCHEMES
from tools.site.sketch import Sketch

STYLE = SITE / "static" / "drawing.css"


def sources() -> list[Path]:
    """The Python files that each make a drawing."""
    of_rungs = [path for rung in rungs.known() for path in sorted(rung.path.glob("drawing*.py"))]
    return [*of_rungs, *sorted((DOCS / "drawings").glob("*.py"))]


def drawn(source: Path) -> Sketch:
    return runpy.run_path(str(source))["DRAWING"]


def shared() -> dict[Path, Sketch]:
    """The drawings that pages of docs/ share, by their files."""
    return {DOCS / "drawings" / f"{name}.svg": make() for name, make in {**DRAWINGS, **SCHEMES}.items()}


def described(text: str, name: str, title: str) -> str:
    """A page in which the image of that name has the drawing's title as its words."""
    return re.sub(rf"!\[[^\]]*\]\({re.escape(name)}\)", lambda _: f"![{title}]({name})", text)


def wanted(drawings: dict[Path, Sketch], pages: list[Path]) -> dict[Path, str]:
    """What the drawings' files should hold, and the pages that may show them."""
    files = {svg: sketch.svg(STYLE.read_text(encoding="utf-8")) for svg, sketch in drawings.items()}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for svg, sketch in drawings.items():
            text = described(text, str(svg.relative_to(page.parent)), sketch.title)
        files[page] = text
    return files


def made(only: list[Path]) -> Iterator[tuple[Path, str]]:
    for source in map(Path.resolve, only or sources()):
        folder = source.parent if source.name.startswith("drawing") else DOCS
        yield from wanted({source.with_suffix(".svg"): drawn(source)}, sorted(folder.glob("*.md"))).items()
    if not only:
        yield from wanted(shared(), sorted(DOCS.glob("*.md"))).items()


def main() -> int:
    parser = generated.parser(__doc__)
    parser.add_argument("only", nargs="*", type=Path, metavar="NAME.py", help="these alone")
    arguments = parser.parse_args()
    return generated.run(arguments, lambda: made(arguments.only))


if __name__ == "__main__":
    sys.exit(main())
