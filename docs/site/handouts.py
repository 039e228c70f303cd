#!/usr/bin/env python3
"""Prints the pages of the site to PDF with headless Chromium, one file per page: handouts.py build/site build/handouts
[03 ..]"""
from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import paths  # noqa: F401
from harness import rungs

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LEFT_OUT = {"index", "search", "genindex", "lab", "player", "explorer"}  # lists, and what lives by being clicked
CANNOT_RUN_HERE = 77


def pages(site: Path) -> dict[str, Path]:
    """Name of the hand-out -> page: 08_fragorder and softmax, from past_fa2/08_fragorder/README.html and
    docs/softmax.html."""
    found = {rung.name: site / rung.directory / "README.html" for rung in rungs.known()}
    chapters = {name: path for name, path in found.items() if path.is_file()}
    return {path.stem: path for path in sorted(site.glob("docs/*.html")) if path.stem not in LEFT_OUT} | chapters


def print_page(browser: str, page: Path, pdf: Path) -> int:
    """The number of sheets. Raises RuntimeError when there are none."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={profile}",
                   "--virtual-time-budget=10000", "--no-pdf-header-footer", f"--print-to-pdf={pdf}", page.resolve().as_uri()]
        if os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        run = subprocess.run(command, capture_output=True, text=True, timeout=1200)  # against hanging for ever
    sheets = len(re.findall(rb"/Type\s*/Page\b", pdf.read_bytes())) if pdf.is_file() else 0
    if run.returncode != 0 or sheets == 0:
        raise RuntimeError(f"{page}: {browser} printed {sheets} sheets and exited with {run.returncode}:\n{run.stderr[-1000:]}")
    return sheets


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="the built site")
    parser.add_argument("folder", type=Path, help="where the PDF files go")
    parser.add_argument("names", nargs="*", help="only pages whose names begin so: 03, softmax (default: all)")
    arguments = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        print(f"Hand-outs are printed by Chromium, and none of {', '.join(BROWSERS)} is on PATH.\n"
              "  Debian:  apt-get install chromium      or print a page from your own browser: its print style is the same",
              file=sys.stderr)
        return CANNOT_RUN_HERE
    try:
        known = pages(arguments.site)
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        return 2
    chosen = {name: page for name, page in known.items()
              if not arguments.names or name.startswith(tuple(arguments.names))}
    if not chosen:
        print(f"{arguments.site}: no page {', '.join(arguments.names)}; ./ladder docs builds the site", file=sys.stderr)
        return 2
    try:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for name, page in chosen.items():
            pdf = arguments.folder / f"{name}.pdf"
            sheets = print_page(browser, page, pdf.resolve())
            print(f"{pdf}: {sheets} sheet{'s' * (sheets > 1)}", flush=True)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
