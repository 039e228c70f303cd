"""Files that are made of others, as tables are of results: renewed, or with --check held to what they would be."""
from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from tools import results, rungs
from tools.course.exercises import CourseError

SHOWN = 40  # lines of a difference


class Stale(Exception):
    """What is older than its data, and is renewed by another program."""


def between(text: str, begin: str, end: str, generated: str, where: object) -> str:
    """The text with this between its two marks, each of which stands once on a line of its own."""
    found = re.findall(f"{re.escape(begin)}\n.*?{re.escape(end)}", text, re.S)
    if len(found) != 1 or text.count(begin) != 1 or text.count(end) != 1:
        raise results.ResultsError(f"{where}: expected one line {begin} and one line {end} behind it")
    return text.replace(found[0], f"{begin}\n{generated}\n{end}")


def parser(words: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--check", action="store_true", help="write nothing; exit 1 if something is stale")
    return made


def run(arguments: argparse.Namespace, made: Callable[[], Iterable[tuple[Path, str]]]) -> int:
    """Renews files, given with what they should hold. Exit code: 0 done; 1 with --check, something is stale; 2 what they are
    made of is wrong. A file is written before the next is made, which may have the same name."""
    stale = []
    try:
        for path, text in made():
            old = path.read_text(encoding="utf-8") if path.is_file() else ""
            if old == text:
                continue
            if arguments.check:
                lines = difflib.unified_diff(old.splitlines(), text.splitlines(), f"{path}, as it is", "made anew", lineterm="")
                stale += [*list(lines)[:SHOWN], f"{path} is stale; run: make plots"]
            else:
                path.write_text(text, encoding="utf-8")
    except Stale as error:
        stale.append(str(error))
    except (results.ResultsError, rungs.RungsError, CourseError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    print("\n".join(stale), end="\n" if stale else "", file=sys.stderr)
    return 1 if stale else 0
