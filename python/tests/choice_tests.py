"""Which rung the package takes, held to the rates that were measured (docs/results): of those that were timed beside it, in one heat, on the same
problem, none is more than 2 % faster. Asked without a GPU, so as on the newest that there are rungs for: an H100 or H200."""

from __future__ import annotations

import csv
import functools
import re
import statistics
import sys
import unittest
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import flash_ladder

RESULTS = Path(__file__).parents[2] / "docs/results"
ALLOWED = 1.02  # times the fastest's time, to a whole percent
# Where a rule by sizes does not find the fastest: how far behind the choice may be, and why.
BEHIND = {
    r"b=\d\d? h=32 kv=8 .*(cache|pages=\d+)": 1.14,  # of a cache the lengths are the device's. Where they are alike d06 is faster; where they are not d08, by four times
    r"b=1 h=32 kv=8 nq=1 nk=1024 d=128 .*": 1.05,  # a third of a microsecond before the first key is asked for: d05 knows less
    r"b=\d h=32 kv=1 nq=1 nk=8192 d=128 .*": 1.03,  # the same, beside d12
    r"b=1 h=32 kv=1 nq=1 nk=65536 d=128 .*": 1.10,  # d16's text is faster there, and nowhere else; nobody knows why
    r"b=\d+ h=16 n=(1024|8192) d=128 types=e4m3,e4m3,bf16.*": 1.16,  # f01 is faster, and its sums forget
}


class Heat(NamedTuple):
    """A problem's rungs that ran in turns, and the time of each in any unit."""

    problem: str
    where: str
    times: dict[str, float]
    alike: frozenset[str] = frozenset()  # nobody can tell them from the rung that was chosen then


def rows_of(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def problem_of(row: dict[str, str]) -> str:
    return row["problem"] or f"b={row['batch']} h={row['heads']} n={row['n']} d={row['d']} {row['dtype']}" + " causal" * (row["causal"] == "1")


def heats_of_bench(name: str) -> list[Heat]:
    """N(0, 1), in turns. A variant that is not a rung's first has its label behind the name."""
    found = defaultdict(dict)
    for row in rows_of(name):
        if row["kind"] == "stage" and row["heat"] and row["inputs"] == "normal" and row["regime"] == "turns":
            found[problem_of(row), f"{name}, heat {row['heat']} of {row['commit']}"][row["stage"]] = float(row["ms_median"])
    return [Heat(*key, times) for key, times in found.items()]


def heats_of_rounds(name: str) -> list[Heat]:
    """The same of a file of rounds, where those stand, too, who ran beside a new rung and have rows of their own from another run."""
    found = defaultdict(lambda: defaultdict(list))
    for row in rows_of(name):
        if row["kind"] == "stage" and row["inputs"] == "normal" and row["regime"] == "turns":
            found[problem_of(row), f"{name}, heat {row['heat']} of {row['commit']}"][row["contestant"]].append(float(row["ms"]))
    return [Heat(*key, {name: statistics.median(its) for name, its in times.items()}) for key, times in found.items()]


def heats_of_decoding(name: str) -> list[Heat]:
    """Rungs of one run: those with pages beside each other, and those without."""
    found = defaultdict(dict)
    for row in rows_of(name):
        rung, _, pages = row["attention"].partition(" ")
        if pages and not pages.startswith("pages="):
            continue  # another problem, of bytes
        words = f"{row['problem']} {pages}".strip()
        found[words, f"{name}, run of {row['commit']}"][rung] = float(row["us_median"])
    return [Heat(*key, times) for key, times in found.items()]


def heats_of_choice(name: str) -> list[Heat]:
    """python/measure/choice.py"""
    found = defaultdict(list)
    for row in rows_of(name):
        if row["rounds"] != "1":  # a first look, of somebody who did not race
            found[row["problem"], f"{name}, {row['commit']}"].append(row)
    return [Heat(*key, {row["rung"]: float(row["over"]) for row in rows},
                 frozenset(row["rung"] for row in rows if float(row["over_lo"]) <= 1 <= float(row["over_hi"]))) for key, rows in found.items()]  # fmt: skip


@functools.cache
def why(problem: str) -> flash_ladder.Why:
    words = problem.removesuffix(" deterministic")
    return flash_ladder.why(words, deterministic=words != problem)


class Choice(unittest.TestCase):
    def judge(self, heats: list[Heat]) -> list[str]:
        """The problems that were judged: the chosen rung was timed, and another one that takes the problem."""
        judged = set()
        for problem, where, all_times, alike in (heat for heat in heats if len(heat.times) > 1):
            said = why(problem)
            times = {name: its for name, its in all_times.items() if name.partition("[")[0] in (said.rung, *said.also)}
            chosen = said.rung if f"{said.rung}[{said.variant}]" not in times else f"{said.rung}[{said.variant}]"
            if chosen not in times or len(times) < 2:
                continue
            judged.add(problem)
            fastest = min(times, key=times.get)
            if not {chosen, fastest} <= alike:
                with self.subTest(problem, where=where):
                    most = next((bound for words, bound in BEHIND.items() if re.fullmatch(words, problem)), ALLOWED)
                    self.assertLessEqual(round(times[chosen] / times[fastest], 2), most, f"{chosen} is chosen, and {fastest} is faster")
        return sorted(judged)

    def test_of_heats_that_were_there_before(self):
        judged = self.judge(heats_of_bench("h200.csv") + heats_of_decoding("h200_decoding.csv"))
        print(f"{len(judged)} problems of h200.csv and h200_decoding.csv", file=sys.stderr)
        self.assertGreaterEqual(len(judged), 70)

    def test_of_rungs_beside_new_ones(self):
        files = sorted(path.name for path in RESULTS.glob("h200_rounds_models_*.csv"))
        judged = self.judge([heat for name in files for heat in heats_of_rounds(name)])
        print(f"{len(judged)} problems of {', '.join(files)}", file=sys.stderr)
        self.assertGreaterEqual(len(judged), 35)

    def test_of_all_rungs_in_turns(self):
        files = [path.name for path in RESULTS.glob("*_choice.csv")]
        if not files:
            self.skipTest("no docs/results/*_choice.csv: python3 python/measure/choice.py --csv docs/results/CARD_choice.csv --commit HASH")
        for name in files:
            judged = self.judge(heats_of_choice(name))
            print(f"{len(judged)} problems of {name}", file=sys.stderr)
            self.assertGreaterEqual(len(judged), 55, "rungs that are chosen now were not timed: python/measure/choice.py anew")


if __name__ == "__main__":
    unittest.main()
