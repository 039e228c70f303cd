"""Runs one mutant in a process of its own and says what became of it."""
from __future__ import annotations

import functools
import json
import os
import resource
import shlex
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tools.mutants import schemata
from tools.mutants.operators import Mutant

# Verdicts. Answers and counts are what the check says; the others are how a process can end besides.
ANSWERS, COUNTS, TIMEOUT, CRASH, SURVIVED = "answers", "counts", "timeout", "crash", "survived"
COUNT_KINDS = {"counts_differ", "conflicts_differ"}
TO_FIRST, ABLATE = ["--first-failure"], ["--ablate"]
WALL_PER_CPU = 10  # a machine that is busy with other things makes a process slow, not endless


@dataclass
class Outcome:
    verdict: str
    detail: str       # the first failure's kind, the signal, the limit
    seconds: float    # of the processor


@dataclass
class Limits:
    cpu_seconds: float = 600

    @staticmethod
    def from_original(seconds: float) -> Limits:
        return Limits(10 * seconds + 5)


@dataclass
class Ended:
    code: int | None  # None: stopped at the limit; negative: the signal
    seconds: float


def run(command: list[str], number: int, limits: Limits) -> Ended:
    """`command` with mutant `number`; what it prints is not kept."""
    environment = {**os.environ, schemata.VARIABLE: str(number)}
    limit = int(limits.cpu_seconds) + 1

    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    begin = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=prepare, start_new_session=True)
    try:
        process.wait(limits.cpu_seconds * WALL_PER_CPU)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return Ended(None, time.monotonic() - begin)
    code = process.returncode
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return Ended(None, time.monotonic() - begin)
    return Ended(code, time.monotonic() - begin)


def measured(command: list[str]) -> Ended:
    """The original program, with its seconds of processor time. Nothing else may run meanwhile."""
    def used() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = used()
    ended = run(command, 0, Limits())
    return Ended(ended.code, used() - before)


def rows_of(document: Path) -> list[dict]:
    try:
        rows = json.loads(document.read_text())
    except (OSError, ValueError):
        return []
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def failures(document: Path) -> list[tuple[str, str]]:
    """Kind and detail of each failure in what `check --json` wrote."""
    found = []
    for row in rows_of(document):
        for failure in row.get("failures", []):
            found.append((failure.get("kind", ""), failure.get("detail", "") or row.get("inputs", "")))
    return found


class Refused(Exception):
    """The original program is not judged right, so nothing can be learnt from its mutants."""


class Check:
    """`ladder check` of one rung on the emulator: its exit code is 1 for a wrong kernel, and its JSON says why."""

    def __init__(self, program: Path, stage: str, work: Path):
        self.work = work
        document = work / "original.json"
        self.command = [str(program), "check", stage, "--on", "cpu"]
        original = measured(self.command + TO_FIRST + ["--json", str(document)])
        if original.code != 0:
            raise Refused(f"{stage} as it is does not pass: {shlex.join(self.command)} ends with {original.code}.")
        self.limits = Limits.from_original(original.seconds)
        self.smallest, self.smallest_limits = self._smallest_problem(document)

    def _smallest_problem(self, document: Path) -> tuple[list[str], Limits]:
        """The options for one of the problems of the whole check, at half its length where the rung takes that. Most mutants
        fail there already, in a fraction of the time; those that pass have the whole check before them."""
        rows = [row for row in rows_of(document) if row.get("ok") and {"batch", "heads", "n", "inputs"} <= set(row)]
        for row in sorted(rows, key=lambda row: row["batch"] * row["heads"] * row["n"] ** 2)[:10]:
            for n in (row["n"] // 2, row["n"]):
                options = ["--inputs", row["inputs"], "--batch", str(row["batch"]), "--heads", str(row["heads"]), "--n", str(n)]
                options += ["--causal"] if row.get("causal") else []
                ended = measured(self.command + options)
                if ended.code == 0:  # 2: not this length, or it is a property and no set of inputs
                    return options, Limits.from_original(ended.seconds)
        return [], self.limits

    def judge(self, mutant: Mutant) -> Outcome:
        if self.smallest:
            outcome = self._run(mutant.number, self.smallest, self.smallest_limits)
            if outcome.verdict not in (SURVIVED, COUNTS):
                return outcome
        outcome = self._run(mutant.number, TO_FIRST)
        if outcome.verdict == SURVIVED:
            outcome = self._run(mutant.number, TO_FIRST + ABLATE, self.ablations)
        return outcome

    def first_look(self, mutant: Mutant) -> bool:
        """Whether what a bare ./ladder asks of the rung stops it."""
        return self._run(mutant.number, ["--quick"]).verdict != SURVIVED

    @functools.cached_property
    def ablations(self) -> Limits:
        """For the check of all variants, as the tests of a rung make it: what the default lets pass may be wrong in another one."""
        ended = run(self.command + ABLATE, 0, Limits())
        if ended.code != 0:
            raise Refused(f"{shlex.join(self.command + ABLATE)} ends with {ended.code}.")
        return Limits.from_original(ended.seconds)

    def _run(self, number: int, options: list[str], limits: Limits | None = None) -> Outcome:
        limits = limits or self.limits
        document = self.work / f"{number}.json"
        document.unlink(missing_ok=True)
        ended = run(self.command + options + ["--json", str(document)], number, limits)
        found = failures(document)
        document.unlink(missing_ok=True)
        if ended.code is None:
            return Outcome(TIMEOUT, f"more than {limits.cpu_seconds:.0f} s", ended.seconds)
        if ended.code == 0:
            return Outcome(SURVIVED, "", ended.seconds)
        if ended.code != 1:
            return Outcome(CRASH, how_it_ended(ended.code), ended.seconds)
        answers = [failure for failure in found if failure[0] not in COUNT_KINDS]
        if found and not answers:
            return Outcome(COUNTS, found[0][0], ended.seconds)
        first = answers[0] if answers else ("check_failed", "")
        return Outcome(ANSWERS, " ".join(part for part in first if part), ended.seconds)


def how_it_ended(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
