"""What came of each prediction, as it was first measured: by git, and not by the rows that stand, which a later run may have replaced.

Goes through the commits that brought results, the oldest first, and computes each formula of docs/prediction_halves.csv on the files of each, until one has
the rows for it, all of one run. That value and that commit stand beside the formula from then on; `measured` in docs/predictions.csv is the
commit that brought the first row of the rung, whatever its problem. Verdicts follow from these: a prediction is hit if all of its halves that were timed are.

Without a word it says what would change, and exits with 1 if anything would; --write writes it. 77: no history.
"""
from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from tools import history, results
from tools.paths import DOCS
from tools.site import prose

LIST, HALVES = DOCS / "predictions.csv", DOCS / "prediction_halves.csv"
SLACK = 0.005  # of a single number, which says as much by its digits: 1.01 is 1.005 to 1.015
FOLDER = "docs/results"
CARDS = ("h200.csv", "h100.csv")
REGIMES = {"sustained": "turns"}  # what it was called at first


def listed() -> dict[str, dict[str, str]]:
    """By rung, in the list's order."""
    return {row["stage"]: row for row in results.table(LIST)}


def within(half: dict[str, str]) -> bool | None:
    """Whether what came lies in the range; None where nothing has come, or nothing was said."""
    if not half["came"] or not half["low"]:
        return None
    low, high = float(half["low"]), float(half["high"])
    slack = SLACK if low == high else 0
    return low - slack <= float(half["came"]) <= high + slack


def decisive(halves: list[dict[str, str]]) -> dict[str, str] | None:
    """The half that decides: the first that failed, or else the first."""
    timed = [half for half in halves if half["came"] and half["low"]]
    return next((half for half in timed if not within(half)), timed[0] if timed else None)


def is_time(half: dict[str, str]) -> bool:
    """Whether more is slower."""
    return half["of"].endswith((", time", ", us"))


def verdict(halves: list[dict[str, str]]) -> tuple[str, str]:
    """Hit or missed, and on which side."""
    half = decisive(halves)
    if half is None or within(half):
        return ("hit" if half else ""), ""
    return "missed", "faster" if (float(half["came"]) > float(half["high"])) != is_time(half) else "slower"


def names(commit: str = "") -> dict[str, str]:
    """What rungs were called when their predictions were committed; of a commit, of those whose prediction it has: before, another kernel had the name."""
    found = {PurePosixPath(row["path"]).parent.name: row for row in results.table(LIST) if row["path"]}
    return {old: row["stage"] for old, row in found.items() if old != row["stage"] and (not commit or history.is_before(row["predicted"], commit))}


def commits() -> list[str]:
    """Those that brought results, the oldest first."""
    listed = history.git("log", "--reverse", "--topo-order", "--format=%h", "--abbrev=8", "--", *(f"{FOLDER}/{name}" for name in CARDS), f"{FOLDER}/*trials*.csv", *(f"{FOLDER}/{name}" for name in results.APART))
    return (listed or "").split()


def lenient(path: Path) -> list[results.Row]:
    """The rows of a file as an earlier schema had them."""
    rules = results.SCHEMA["results"]["properties"]
    absent = {name: None if "null" in rule.get("type", "") else "" for name, rule in rules.items()} | {"source": "measured", "regime": "turns"}
    with path.open(encoding="utf-8", newline="") as file:
        return [results.Row(line, absent | {name: results._typed(REGIMES.get(cell, cell), rules[name]) for name, cell in row.items() if name in rules})
                for line, row in enumerate(csv.DictReader(file), 2)]


def forget() -> None:
    for cached in (prose._groups, prose._heats, prose.slowed):
        cached.cache_clear()


@contextmanager
def as_of(commit: str, folder: Path) -> Iterator[list[results.Row]]:
    """Formulas read the results of this commit; it gives the rows of rungs."""
    for name in history.files(commit):
        path = PurePosixPath(name)
        if str(path.parent) == FOLDER and path.suffix == ".csv" and path.name.startswith(("h200", "h100")) and not path.name.endswith(("counters.csv", "traffic.csv")):
            text = history.file(commit, name) or ""
            for old, new in names(commit).items():
                text = text.replace(f"{old},", f"{new},").replace(f"{old}[", f"{new}[")
            (folder / path.name.replace("rounds.csv", "rounds_all.csv")).write_text(text, encoding="utf-8")  # one file, before each part had its own
    for name in prose.TRIALS:
        if not (folder / name).exists():
            (folder / name).write_text("tried\n", encoding="utf-8")
    kept = results.RESULTS, results.recorded
    results.RESULTS, results.recorded = folder, lambda name, kind="results": lenient(folder / name)
    forget()
    try:
        yield [row for name in CARDS if (folder / name).exists() for row in lenient(folder / name) if row.is_rung]
    finally:
        results.RESULTS, results.recorded = kept
        forget()


def found(rungs: list[dict[str, str]], halves: list[dict[str, str]]) -> None:
    """Fills in what history says: `measured` and `verdict` and `way` of rungs, `came` and `first` of halves."""
    for row in rungs:
        row["measured"] = ""
    for half in halves:
        half["came"] = half["first"] = ""
    for commit in commits():
        with tempfile.TemporaryDirectory(prefix="first_rows.") as name, as_of(commit, Path(name)) as rows:
            timed = {row.stage for row in rows}
            for file, (column, _) in results.APART.items():
                if (path := Path(name) / file).exists():
                    timed |= {row[column].partition(" ")[0] for row in results.table(path)}  # "d17_nibbles int4" is d17
            for row in rungs:
                if not row["measured"] and row["stage"] in timed:
                    row["measured"] = commit
            for half in halves:
                if half["formula"] and not half["came"] and half["stage"] in timed:
                    try:
                        value = float(prose.value(half["formula"]))
                        if not prose.compares_two_runs(half["formula"]):
                            half["came"], half["first"] = f"{value:.4f}", commit
                    except (results.ResultsError, OSError, TypeError, KeyError):
                        pass  # no row yet
    for row in rungs:
        mine = [half for half in halves if half["stage"] == row["stage"]]
        if row["verdict"] not in ("none", "vague"):
            row["verdict"], row["way"] = verdict(mine)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write both files")
    arguments = parser.parse_args()
    if not history.is_here():
        print("first_rows: the history is not here.", file=sys.stderr)
        return 77
    rungs, halves = results.table(LIST), results.table(HALVES)
    before = [dict(row) for row in (*rungs, *halves)]
    found(rungs, halves)
    changed = [(old, new) for old, new in zip(before, (*rungs, *halves)) if old != new]
    for old, new in changed:
        print(f"{new['stage']}: {', '.join(f'{key} {old.get(key)} -> {new[key]}' for key in new if old.get(key) != new[key])}")
    if arguments.write:
        results.write_table(LIST, rungs)
        results.write_table(HALVES, halves)
        return 0
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
