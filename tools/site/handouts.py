"""Prints the pages of the site to PDF with headless Chromium, one file per page: handouts.py build/site build/handouts
[03 ..]

For students: what happened, answers and hints, folded on the site, are left out. With --answers all of it is printed,
and the answers to the exercises."""
from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tools import rungs

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LEFT_OUT = {"index", "search", "genindex", "lab", "player", "explorer"}  # lists, and what lives by being clicked
FOR_INSTRUCTORS = {"answers"}
WITHOUT_ANSWERS = "questions"  # of a page's address; site.js knows it
CANNOT_RUN_HERE = 77


class NoBrowser(RuntimeError):
    pass


def browser() -> str:
    if found := next(filter(None, map(shutil.which, BROWSERS)), None):
        return found
    raise NoBrowser(f"Hand-outs and slides are printed by Chromium, and none of {', '.join(BROWSERS)} is on PATH.\n"
                    "  Debian:  apt-get install chromium      or print a page from your own browser: its print style is the same")


def pages(site: Path, answers: bool = True) -> dict[str, Path]:
    """Name of the hand-out -> page: 08_fragorder, softmax and 02a_swizzle, from past_fa2/08_fragorder/README.html,
    docs/softmax.html and course/exercises/02a_swizzle/task.html."""
    found = {rung.name: site / rung.directory / "README.html" for rung in rungs.known()}
    found |= {path.parent.name: path for path in sorted(site.glob("course/exercises/*/task.html"))}
    found |= {path.stem: path for path in sorted(site.glob("course/*.html")) if answers or path.stem not in FOR_INSTRUCTORS}
    there = {name: path for name, path in found.items() if path.is_file()}
    return {path.stem: path for path in sorted(site.glob("docs/*.html")) if path.stem not in LEFT_OUT} | there


def print_page(browser: str, page: Path, pdf: Path, query: str = "") -> int:
    """The number of sheets. Raises RuntimeError when there are none."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                   "--virtual-time-budget=10000", "--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.resolve().as_uri() + (query and f"?{query}")]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        run = subprocess.run(command, capture_output=True, text=True, timeout=1200)  # against hanging for ever
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) if pdf.is_file() else 0
    if run.returncode != 0 or sheets == 0:
        raise RuntimeError(f"{page}: {browser} printed {sheets} sheets and exited with {run.returncode}:\n{run.stderr[-1000:]}")
    return sheets


def printed(made: Callable[[], Iterable[tuple[Path, Path, str]]], what: str) -> int:
    """Prints pages to PDF files, each with a query behind its address. Exit code: 0 done; 1 not printed; 2 no such page; 77 no browser."""
    try:
        chromium = browser()
        for page, pdf, query in made():
            pdf.parent.mkdir(parents=True, exist_ok=True)
            sheets = print_page(chromium, page, pdf.resolve(), query)
            print(f"{pdf}: {sheets} {what}{'s' * (sheets > 1)}", flush=True)
    except NoBrowser as error:
        print(error, file=sys.stderr)
        return CANNOT_RUN_HERE
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        return 2
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path, help="the built site")
    parser.add_argument("folder", type=Path, help="where the PDF files go")
    parser.add_argument("names", nargs="*", help="only pages whose names begin so: 03, softmax (default: all)")
    parser.add_argument("--answers", action="store_true", help="with what is folded, and the answers to the exercises")
    arguments = parser.parse_args()

    def made() -> Iterator[tuple[Path, Path, str]]:
        known = pages(arguments.site, arguments.answers)
        chosen = [name for name in known if not arguments.names or name.startswith(tuple(arguments.names))]
        if not chosen:
            raise rungs.RungsError(f"{arguments.site}: no page {', '.join(arguments.names)}; ./ladder docs builds the site")
        for name in chosen:
            yield known[name], arguments.folder / f"{name}.pdf", "" if arguments.answers else WITHOUT_ANSWERS

    return printed(made, "sheet")


if __name__ == "__main__":
    sys.exit(main())
