"""Copies the slides out of the built site, one file that needs no other, and prints them to PDF with headless Chromium:
slides.py build/site build/slides [03 ..]"""
from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import rungs
from tools.site import handouts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the built site")
    parser.add_argument("folder", type=Path, help="where the slides go")
    parser.add_argument("names", nargs="*", help="PDF files of these rungs alone (default: one of all)")
    arguments = parser.parse_args()
    deck = arguments.site / "slides.html"
    if not deck.is_file():
        print(f"{deck} is not there; ./ladder docs builds the site", file=sys.stderr)
        return 2

    def made() -> Iterator[tuple[Path, Path, str]]:
        for name in [rungs.named(name).name for name in arguments.names] or [""]:
            yield deck, arguments.folder / f"{name or 'slides'}.pdf", f"only={name}" if name else ""

    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(shutil.copy(deck, arguments.folder / "slides.html"))
    return handouts.printed(made, "slide")


if __name__ == "__main__":
    sys.exit(main())
