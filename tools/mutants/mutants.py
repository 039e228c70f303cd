"""Makes wrong kernels out of every rung, has each judged as a reader would judge it, and prints which of them nobody notices.

  python3 -m tools.mutants.mutants                    all rungs, and the table in docs/results/mutants.csv
  python3 -m tools.mutants.mutants 03 09_rescale      these rungs
  python3 -m tools.mutants.mutants --sample 60        as many, drawn by the commit, as a minute allows

docs/mutants.md says what a mutant is, how a survivor is read, and where an equivalent one is written down.
It reads C++ by tree-sitter:  python3 -m venv build/venv-syntax && build/venv-syntax/bin/pip install tree-sitter tree-sitter-cpp
"""
from __future__ import annotations

import argparse
import datetime
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tools import rungs
from tools.mutants import draw as drawing, judge
from tools.mutants.operators import Mutant, NotUnderstood
from tools.mutants.program import Build, BuildError, Rung
from tools.paths import ROOT
from tools.results import table as read_table, write_table

COLUMNS = ["rung", "mutants", "not_a_program", "killed_by_answers", "killed_by_counts", "killed_by_timeout_or_crash",
           "equivalent", "survived", "score", "commit", "date"]
SAMPLED_PER_RUNG = 40


MISSING = "Missing check:"  # how the reason of a mutant begins that is wrong and that nothing notices yet


class UsageError(Exception):
    pass


# ---- which rungs -----------------------------------------------------------------------------------------------------
def choose_stages(typed: list[str]) -> list[rungs.Rung]:
    """As ./ladder does: 3, 03, kvpipe and 03_kvpipe name the same."""
    chosen = []
    for word in typed:
        rung = rungs.find(word)
        if rung is None:
            raise UsageError(rungs.no_such(word))
        if rung not in chosen:
            chosen.append(rung)
    return chosen


# ---- equivalents -----------------------------------------------------------------------------------------------------
def read_equivalents(path: Path) -> dict[str, str]:
    """Key and reason of each entry: a line with the key, or with each key that one reason holds for, and indented below
    it the reason. A reason that begins with MISSING is no excuse: the mutant survives, in the table too, but a sample
    does not fail for what is known."""
    entries: dict[str, str] = {}
    keys: list[str] = []  # of the entry that is read
    if not path.exists():
        return entries
    for i, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line[:1].isspace() and line.strip():
            if not keys:
                raise UsageError(f"{path}:{i}: a reason without a mutant above it.")
            for key in keys:
                entries[key] = f"{entries[key]} {line.strip()}".strip()
            continue
        key = "" if line.startswith("#") else line.strip()
        if keys and (entries[keys[0]] or not key):  # the entry ends here
            if not entries[keys[0]]:
                raise UsageError(f"{path}:{i - 1}: no reason is given. Write it below the mutant, indented.")
            keys = []
        if not key:
            continue
        if key in entries:
            raise UsageError(f"{path}:{i}: this mutant is listed twice.")
        entries[key] = ""
        keys.append(key)
    return entries


# ---- results ---------------------------------------------------------------------------------------------------------
@dataclass
class Results:
    """What became of the mutants of one rung."""
    name: str
    equivalents: dict[str, str]
    equivalents_path: Path
    outcomes: dict[str, judge.Outcome] = field(default_factory=dict)
    mutants: dict[str, Mutant] = field(default_factory=dict)
    not_programs: list[Mutant] = field(default_factory=list)
    known: set[str] = field(default_factory=set)  # keys of all mutants, run or not
    folder: str = ""
    seen_at_once: set[str] = field(default_factory=set)  # of the killed, those that a first look stops

    def add(self, mutant: Mutant, outcome: judge.Outcome) -> None:
        self.mutants[mutant.key] = mutant
        self.outcomes[mutant.key] = outcome

    def equivalent(self, key: str) -> bool:
        return key in self.equivalents and not self.equivalents[key].startswith(MISSING)

    def survivors(self, known: bool = True) -> list[Mutant]:
        """With `known` also those that are listed as a missing check."""
        return [self.mutants[key] for key, outcome in self.outcomes.items() if outcome.verdict == judge.SURVIVED
                and not self.equivalent(key) and (known or key not in self.equivalents)]

    def wrong_entries(self) -> list[str]:
        """Entries of the list of equivalents that say something false."""
        faults = []
        never = {mutant.key for mutant in self.not_programs}
        for key in self.equivalents:
            where = f"{self.equivalents_path}: {key}\n  "
            if key in never:
                faults.append(where + "This is no program, it does not compile. Take the entry out.")
            elif key not in self.known:
                faults.append(where + "No mutant has this name any more. Take the entry out, or mend it.")
            elif key in self.outcomes and self.outcomes[key].verdict != judge.SURVIVED:
                outcome = self.outcomes[key]
                faults.append(where + f"It is listed, and killed ({outcome.verdict} {outcome.detail}). Take the entry out.")
        return faults

    def counts(self) -> dict[str, int]:
        verdicts_of = Counter(outcome.verdict for key, outcome in self.outcomes.items())
        equivalent = sum(1 for key, outcome in self.outcomes.items()
                         if outcome.verdict == judge.SURVIVED and self.equivalent(key))
        return {"mutants": len(self.outcomes), "not_a_program": len(self.not_programs),
                "killed_by_answers": verdicts_of[judge.ANSWERS], "killed_by_counts": verdicts_of[judge.COUNTS],
                "killed_by_timeout_or_crash": verdicts_of[judge.TIMEOUT] + verdicts_of[judge.CRASH],
                "equivalent": equivalent, "survived": verdicts_of[judge.SURVIVED] - equivalent}

    def score(self) -> float:
        counts = self.counts()
        judged = counts["mutants"] - counts["equivalent"]
        return 1.0 if judged == 0 else (judged - counts["survived"]) / judged


def describe_survivor(results: Results, mutant: Mutant) -> str:
    """The place, and below it the key by which an equivalent one is listed."""
    return f"{results.folder}{mutant.path}:{mutant.line}: nobody noticed\n{mutant.key}\n"


def table(all_results: list[Results]) -> str:
    header = ["", "mutants", "no program", "answers", "counts", "time, crash", "equivalent", "survived", "score"]
    rows = [header]
    for results in all_results:
        rows.append([results.name, *(str(value) for value in results.counts().values()), f"{100 * results.score():.1f} %"])
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                               for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows) + "\n"


def run_whole(path: Path) -> set[str]:
    """The rungs of which all mutants have been run, once."""
    return {row["rung"] for row in read_table(path.absolute())}


def write_csv(path: Path, all_results: list[Results], commit: str, today: str) -> None:
    """Rows of what was run anew; the others stay as they were."""
    rows = {row["rung"]: row for row in read_table(path.absolute())} if path.exists() else {}
    for results in all_results:
        rows[results.name] = {"rung": results.name, **results.counts(), "score": f"{results.score():.4f}", "commit": commit,
                              "date": today}
    order = sorted(rows, key=rungs.position)  # which may fail: the file is still whole
    write_table(path, [rows[name] for name in order], COLUMNS)


# ---- running ---------------------------------------------------------------------------------------------------------
class Clock:
    """The time that a sample may take, from its first mutant on: a machine that compiles slowly judges some, too. Without a limit
    there is always time."""

    def __init__(self, seconds: float | None):
        self.seconds, self.end = seconds, None

    def start(self) -> None:
        if self.seconds is not None and self.end is None:
            self.end = time.monotonic() + self.seconds

    def left(self) -> float:
        return float("inf") if self.end is None else self.end - time.monotonic()


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def judge_all(results: Results, mutants: list[Mutant], one, jobs: int, clock: Clock) -> None:
    """`one` judges one mutant. Those for which no time is left stay unjudged."""
    def timed(mutant: Mutant) -> judge.Outcome | None:
        return one(mutant) if clock.left() > 0 else None

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for i, (mutant, outcome) in enumerate(zip(mutants, pool.map(timed, mutants)), 1):
                if outcome is not None:
                    results.add(mutant, outcome)
                progress(f"{results.name}: {i} of {len(mutants)} mutants, {len(results.survivors())} unnoticed")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    progress("")


def run_rung(directory: Path, build: Build, work: Path, jobs: int, clock: Clock, draw: random.Random | None,
             all_results: list[Results], first_look: bool = False) -> None:
    rung = Rung(directory, build, work, jobs)
    results = Results(rung.name, read_equivalents(directory / "mutants.txt"), directory / "mutants.txt",
                      folder=f"{directory.relative_to(ROOT)}/")
    all_results.append(results)
    results.known = {mutant.key for mutant in rung.mutants}
    if draw is not None:
        unknown = [mutant for mutant in rung.mutants if mutant.key not in results.equivalents]  # what survives takes longest to judge
        rung.keep(draw.sample(unknown, min(SAMPLED_PER_RUNG, len(unknown))))
    progress(f"{rung.name}: {len(rung.mutants)} mutants are compiled")
    rung.compile()
    clock.start()
    results.not_programs = rung.not_programs
    check = judge.Check(rung.program, rung.name, rung.work)
    mutants = rung.mutants if draw is None else draw.sample(rung.mutants, len(rung.mutants))
    judge_all(results, mutants, check.judge, jobs, clock)
    if first_look:
        killed = [mutant for mutant in mutants if mutant.key in results.outcomes
                  and results.outcomes[mutant.key].verdict != judge.SURVIVED]
        results.seen_at_once = {mutant.key for mutant in killed if check.first_look(mutant)}


def commit_of(root: Path) -> str:
    result = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True)
    return result.stdout.strip()


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tools.mutants.mutants", description=__doc__.split("\n\n")[0],
                                     epilog="docs/mutants.md says how a survivor is read.")
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="a stage; without one, all stages")
    parser.add_argument("--build", type=Path, default=Path(os.environ.get("LADDER_BUILD", ROOT / "build")),
                        help="a configured Ninja build of the ladder (default: build)")
    parser.add_argument("--sample", type=float, metavar="SECONDS", help="draw rungs and mutants at random until the time is up")
    parser.add_argument("--seed", type=int, help="of the sample, which is printed; default: that of the commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time (default: one per processor)")
    parser.add_argument("--first-look", action="store_true", help="say how many of the killed a bare ./ladder stops")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="update this table with what was run")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write what became of each mutant, a line each")
    options = parser.parse_args(arguments)
    if options.sample is not None and not options.sample > 0:
        raise UsageError(f"--sample {options.sample:g}: seconds, more than 0, such as --sample 60.")
    if options.jobs < 1:
        raise UsageError(f"--jobs {options.jobs}: at least 1.")
    if options.csv is not None and options.sample is not None:
        raise UsageError("--csv is a table of whole rungs, and --sample runs a part of them. Leave one of them out.")
    if options.seed is not None and options.sample is None:
        raise UsageError("--seed belongs to --sample SECONDS.")
    for path in (options.csv, options.log):
        if path is not None and not path.resolve().parent.is_dir():
            raise UsageError(f"{path}: there is no directory {path.resolve().parent}.")
    if not (options.build / "build.ninja").exists():
        raise UsageError(f"{options.build} is no Ninja build of the ladder.\n"
                         f"  Here:  cmake -S . -B {options.build} -G Ninja")
    return options


def report(all_results: list[Results], sample: bool = False) -> int:
    failed = False
    for results in all_results:
        for mutant in sorted(results.survivors(known=not sample), key=lambda mutant: (mutant.path, mutant.line)):
            print(describe_survivor(results, mutant))
            failed = True
        for fault in results.wrong_entries():
            print(f"{fault}\n")
            failed = failed or not sample  # what one compiler leaves unnoticed, another may show
    print(table(all_results), end="")
    if failed:
        print("A mutant that nobody noticed is a missing check, or equivalent: docs/mutants.md says what to do.")
    return 1 if failed else 0


def write_log(path: Path, all_results: list[Results]) -> None:
    with path.open("w") as file:
        for results in all_results:
            for key, outcome in results.outcomes.items():
                mutant = results.mutants[key]
                file.write(f"{results.name}\t{mutant.path}:{mutant.line}\t{outcome.verdict}\t{outcome.detail}\t"
                           f"{outcome.seconds:.2f}\t{key}\n")
            for mutant in results.not_programs:
                file.write(f"{results.name}\t{mutant.path}:{mutant.line}\tnot_a_program\t\t0\t{mutant.key}\n")


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    build = Build(options.build.resolve())
    if "LADDER" not in os.environ:
        os.environ["LADDER"] = str(build.directory / "ladder")
        build.make("ladder")  # which says what rungs there are
    chosen = choose_stages(options.stages) if options.stages else list(rungs.known())
    draw = None
    if options.sample is not None:
        seed = drawing.seed(options.seed)
        draw = random.Random(seed)
        if not options.stages:  # of the others nobody has looked at all survivors
            chosen = [stage for stage in chosen if stage.name in run_whole(ROOT / "docs" / "results" / "mutants.csv")
                      and (stage.path / "mutants.txt").exists()]
        chosen = draw.sample(chosen, len(chosen))
        print(f"A sample of {options.sample:g} s; the same one again: --sample {options.sample:g} --seed {seed}")
    # The stages are compiled with their mutants; of the ladder only the rest is needed.
    build.make(*build.link_inputs("ladder"))
    work = options.build.resolve() / "mutants"
    clock, all_results, interrupted = Clock(options.sample), [], False
    began = time.monotonic()
    try:
        for stage in chosen:
            run_rung(stage.path, build, work, options.jobs, clock, draw, all_results, options.first_look)
            if options.log is not None:
                write_log(options.log, all_results)
            print(f"{stage.name}: {len(all_results[-1].outcomes)} mutants, {len(all_results[-1].survivors())} unnoticed, "
                  f"{time.monotonic() - began:.0f} s so far", file=sys.stderr, flush=True)
            # A rung takes some ten seconds to compile: another one needs time for it, and for its mutants.
            if clock.left() < 15:
                break
    except KeyboardInterrupt:
        interrupted = True
        print("Interrupted; the results so far stand.", file=sys.stderr)
    code = report(all_results, options.sample is not None)
    if options.first_look:
        killed = sum(outcome.verdict != judge.SURVIVED for results in all_results for outcome in results.outcomes.values())
        seen = sum(len(results.seen_at_once) for results in all_results)
        print(f"A bare ./ladder stops {seen} of the {killed} that were killed.")
    if options.log is not None:
        write_log(options.log, all_results)
    if options.csv is not None and all_results and not interrupted:
        write_csv(options.csv, all_results, commit_of(ROOT), datetime.date.today().isoformat())
    return 130 if interrupted else code


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (UsageError, rungs.RungsError, OSError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except (BuildError, NotUnderstood, judge.Refused) as error:
        print(error, file=sys.stderr)
        sys.exit(1)
