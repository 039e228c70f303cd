"""Is the kernel that a row of results was timed with the one that stands? By git: the kernel.cuh at the row's commit and today's, comments and white
space aside, with what it uses of common/; where the text has changed, by the machine code of both, which --record writes into
docs/results/row_kernels.csv, where nvcc is installed: kernel by kernel, for the card that all rows are of.

Without a word it lists the rows whose kernel is not today's. Exit code: 0 every row is of the kernel that stands, or named in
docs/results/row_changes.csv with what has changed; 1 one is not; 77 no history, or no nvcc to record with.
"""
from __future__ import annotations

import argparse
import functools
import hashlib
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools import history, results, rungs
from tools.evidence import machine_code as mc
from tools.paths import ROOT

CARDS = ("h200", "h100")
RECORD = results.RESULTS / "row_kernels.csv"
CHANGES = results.RESULTS / "row_changes.csv"  # rung, commit and what has changed in what it does
STANDS = results.RESULTS / "row_stands.csv"  # how the kernel of each row stands to today's, as the pages show it
COMMITS = results.RESULTS / "row_commits.csv"  # commits that rows name and that are not in git, and what is there instead
ARCH, COLUMNS = "90a", ("stage", "text", "kernel", "instructions", "code")
IDLE = ("no_keys",)  # runs where no query sees a key, and no row is of such a problem
SAME_TEXT, SAME_CODE, OTHER_CODE, UNKNOWN = "same text", "same machine code", "other machine code", "not recorded"


@functools.cache
def recorded() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """By rung and its text's digest: each kernel and its machine code, by its digest. A name may stand there several times: it has numbers
    alone among its template arguments."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    if RECORD.exists():
        for row in results.table(RECORD.name):
            found.setdefault((row["stage"], row["text"]), []).append((row["kernel"], row["code"]))
    return found


@dataclass(frozen=True)
class Timed:
    """Rows of a rung, of one commit."""

    stage: str
    commit: str
    date: str
    rows: int


def stand_ins() -> dict[str, str]:
    """For a commit that rows name and that git does not have: the one with these kernels."""
    return {row["named"]: row["in_git"] for row in results.table(COMMITS)}


def timed() -> list[Timed]:
    """What rows there are of rungs, in the files' order."""
    rows = [(row["stage"].partition("[")[0], row) for card in CARDS for row in results.table(f"{card}.csv") if row["kind"] == "stage" and row["source"] == "measured"]
    rows += [(rung, row) for file, (column, _) in results.APART.items() for row in results.table(file) if rungs.find(rung := row[column].partition(" ")[0])]
    rows += [(row["rung"], row) for name in ("h200_peers.csv", "h200_twins_peers.csv") for row in results.table(name) if row["rung"]]
    of = [(rung, row["commit"]) for rung, row in rows]
    dates = {key: row["date"] for key, (_, row) in zip(of, rows)}
    return [Timed(stage, commit, dates[stage, commit], count) for (stage, commit), count in Counter(of).items()]


def compared(row: Timed) -> tuple[str, list[str]]:
    """How the kernel of a row stands to today's, and the kernels of then that have no equal now."""
    then, now = history.kernel(stand_ins().get(row.commit, row.commit), row.stage), history.kernel("", row.stage)
    if then is None or now is None:
        return UNKNOWN, []
    if then == now:
        return SAME_TEXT, []
    record = recorded()
    old, new = (record.get((row.stage, history.digest(text))) for text in (then, now))
    if old is None or new is None:
        return UNKNOWN, []
    gone = [name for name, code in old if code not in {other for _, other in new} and name.partition("<")[0] not in IDLE]
    return (OTHER_CODE if gone else SAME_CODE), gone


def compile_at(commit: str, stage: str, nvcc: str, scratch: Path) -> list[dict[str, str]]:
    """Rows of the record: a rung compiled in the tree of a commit, "" for the working tree."""
    tree, folder = ROOT, history.kernel_path(commit, stage).rsplit("/", 1)[0]
    if commit:
        tree = scratch / "tree"
        tree.mkdir()
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "--", "common", "harness", folder], capture_output=True, check=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    text = history.digest(history.kernel(commit, stage))
    found = [dict(zip(COLUMNS, (stage, text, kernel.name, str(len(kernel.instructions)), hashlib.sha256(kernel.code).hexdigest()[:16])))
             for kernel in mc.compile_stage(nvcc, tree / folder, tree, ARCH, scratch / f"{stage}.cubin")]
    print(f"{stage} at {commit or 'the working tree'}", file=sys.stderr, flush=True)
    return found


def told() -> dict[tuple[str, str], dict[str, str]]:
    """What has changed since rows whose kernel is not today's, by rung and commit."""
    return {(row["stage"], row["commit"]): row for row in results.table(CHANGES.name)}


def stands() -> list[dict[str, str]]:
    """Rows of row_stands.csv."""
    return [{"stage": row.stage, "commit": row.commit, "date": row.date, "rows": str(row.rows), "how": how, "kernels": "; ".join(gone)}
            for row in timed() for how, gone in [compared(row)]]


def record(nvcc: str, jobs: int) -> None:
    """Adds what is missing: texts that rows are of and that are not today's, and today's of the same rungs. Drops what no row asks for."""
    wanted: dict[tuple[str, str], tuple[str, str]] = {}  # rung and text: a commit that has it
    for row in timed():
        commit = stand_ins().get(row.commit, row.commit)
        then, now = history.kernel(commit, row.stage), history.kernel("", row.stage)
        if then is not None and now is not None and then != now:
            wanted.setdefault((row.stage, history.digest(now)), ("", row.stage))
            wanted.setdefault((row.stage, history.digest(then)), (commit, row.stage))
    kept = [row for row in results.table(RECORD.name) if (row["stage"], row["text"]) in wanted] if RECORD.exists() else []
    there = {(row["stage"], row["text"]) for row in kept}
    by_commit: dict[str, list[str]] = {}
    for key, (commit, stage) in wanted.items():
        if key not in there:
            by_commit.setdefault(commit, []).append(stage)
    with tempfile.TemporaryDirectory(prefix="row_kernels.") as directory, ThreadPoolExecutor(jobs) as pool:
        def compiled(work: tuple[str, str]) -> list[dict[str, str]]:
            try:
                return compile_at(*work, nvcc, Path(tempfile.mkdtemp(dir=directory)))
            except mc.CodeError as error:
                print(error, file=sys.stderr)
                return []

        for rows in pool.map(compiled, [(commit, stage) for commit, stages in by_commit.items() for stage in stages]):
            kept = sorted(kept + rows, key=lambda row: (row["stage"], row["text"], row["kernel"]))
            results.write_table(RECORD, kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="compile what is missing, and write docs/results/row_kernels.csv")
    parser.add_argument("--jobs", type=int, default=2, help="rungs at a time (default: 2)")
    arguments = parser.parse_args()
    if not history.is_here():
        print("row_kernels: the history is not here.", file=sys.stderr)
        return mc.CANNOT_RUN
    if arguments.record:
        nvcc = mc.find_nvcc()
        if nvcc is None:
            print("row_kernels: there is no nvcc. Put it on PATH, or set CUDACXX.", file=sys.stderr)
            return mc.CANNOT_RUN
        record(nvcc, max(1, arguments.jobs))
        recorded.cache_clear()
        results.write_table(STANDS, stands())
    faults = 0
    for row in timed():
        how, gone = compared(row)
        if how not in (SAME_TEXT, SAME_CODE):
            said = told().get((row.stage, row.commit))
            faults += said is None
            print(f"{row.stage:<16} {row.commit:<13} {row.rows:>3} rows: {how}{': ' if gone else ''}{', '.join(gone)}{'' if said is None else f'. Told: ' + said['what']}")
    return mc.DIFFERENT if faults else mc.DONE


if __name__ == "__main__":
    sys.exit(main())
