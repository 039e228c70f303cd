"""Has kernels judged that were written to get past the check, or to be called wrong by it without being so.

  python3 -m tools.mutants.invented                      all of invented.txt
  python3 -m tools.mutants.invented nan_keys heads       those whose name contains one of these words
  python3 -m tools.mutants.invented --sample 10          drawn by the commit until ten seconds are over; the seed is printed

A mutant has one change that a program thought of; these are mistakes that take thought. An entry of invented.txt ends with an empty line:

  == NAME: RUNG, VERDICT           what `ladder try --counts` must say of the kernel
  -line of the rung's kernel       the change, as in a diff: lines that go, lines that come, and lines beside them where
  +line of the invented one        those that go are none or stand there more than once. `@@` begins the next change.
  =line that stays

Verdicts: wrong (an answer, or what the emulator reports), counts (right answers, other counts than the rung's), refused (no
kernel by its text), right, `thorough: REASON`, a wrong one that only `--thorough` sees, and `passes: REASON`, one that the
check cannot or does not yet see. `wrong: KIND` and `counts: KIND` ask for this kind of failure or report among those that the
check names: nan_output, in-flight-read.
Exit codes: 0 all are as their entries say, 1 one is not, 2 the file or the command is not as it must be.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tools import rungs
from tools.mutants import draw
from tools.paths import ROOT

FILE = ROOT / "tools" / "mutants" / "invented.txt"
WRONG, COUNTS, REFUSED, RIGHT = "wrong", "counts", "refused", "right"
THOROUGH, PASSES = "thorough", "passes"  # each with a reason
VERDICTS = (WRONG, COUNTS, REFUSED, RIGHT, THOROUGH, PASSES)
COUNT_KINDS = {"counts_differ", "conflicts_differ"}
SIGNS = ("-", "+", "=")
LONGEST = 1800  # seconds, on a machine that ten others use; the check has a limit of its own


class Unreadable(Exception):
    """invented.txt, or the command, is not as it must be."""


def with_parts(text: str) -> str:
    """A kernel in which what it includes of common/words/ stands in full."""
    def part(found: re.Match) -> str:
        lines = (ROOT / found[1]).read_text(encoding="utf-8").splitlines()
        return "".join(f"{line}\n" for line in lines if not line.startswith(("#include", "#pragma once")))

    return re.sub(r'^#include "(common/words/\w+\.cuh)"\n', part, text, flags=re.M)


@dataclass(frozen=True)
class Invention:
    name: str
    rung: str
    verdict: str
    reason: str  # of wrong and counts: the kind of failure that has to be there, if any
    changes: tuple[tuple[str, ...], ...]  # each line with its sign

    @staticmethod
    def old(change: tuple[str, ...], signs: str = "=-") -> str:
        return f"\n{''.join(line[1:] + chr(10) for line in change if line[0] in signs)}"

    def kernel(self, text: str) -> str:
        """The rung's kernel with the changes made. Lines that it says as a part are changed there: then its parts stand in it in full."""
        text = f"\n{text}"
        if not all(self.old(change) in text for change in self.changes):
            text = with_parts(text)
        for change in self.changes:
            old, new = self.old(change), self.old(change, "=+")
            times = len(re.findall(f"(?={re.escape(old)})", text)) if len(old) > 1 else 0
            if times != 1:
                raise Unreadable(f"{FILE.name}: {self.name}: its lines stand {times} times in {self.rung}, not once; if the rung "
                                 f"has changed, the entry has to:\n{old[1:]}")
            text = text.replace(old, new)
        return text[1:]


def parsed(text: str) -> list[Invention]:
    found: list[Invention] = []
    for entry in text.split("\n\n"):  # a line that is empty, or has a sign
        lines = [line for line in entry.strip("\n").split("\n") if not line.startswith("#")]
        if lines in ([], [""]):
            continue
        match = re.fullmatch(r"== (\S+): (\w+), (\w+)(?:: (.+))?", lines[0])
        changes = tuple(tuple(part.split("\n")) for part in "\n".join(lines[1:]).split("\n@@\n"))
        if (not match or match[3] not in VERDICTS or (match[3] in (THOROUGH, PASSES) and not match[4])
                or (match[3] in (REFUSED, RIGHT) and match[4])
                or not all(line[:1] in SIGNS for part in changes for line in part)):
            raise Unreadable(f"{FILE.name}: this is no entry: {lines[0]}")
        if any(match[1] == other.name for other in found):
            raise Unreadable(f"{FILE.name}: two entries are called {match[1]}")
        found.append(Invention(match[1], match[2], match[3], match[4] or "", changes))
    return found


def judged(invention: Invention) -> str:
    """What the check says: WRONG, COUNTS, REFUSED or RIGHT; with what it found, where the entry's kind is not among it."""
    rung = rungs.named(invention.rung)
    with tempfile.TemporaryDirectory() as folder:
        kernel = Path(folder, "kernel.cuh")
        kernel.write_text(invention.kernel(rung.kernel.read_text()))
        command = [rungs.program(), "try", str(kernel), "--like", rung.name, "--counts", "--json", "-"]
        if invention.verdict == THOROUGH:
            command.append("--thorough")
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
        except subprocess.TimeoutExpired:
            return f"no answer after {LONGEST} s"
    if run.returncode == 0:
        return RIGHT
    if run.returncode != 1:
        return f"exit code {run.returncode}: {run.stderr[-300:]}"
    if not run.stdout:
        return REFUSED
    failures = [failure for row in json.loads(run.stdout) for failure in row["failures"]]
    kinds = {failure["kind"] for failure in failures}
    said = COUNTS if kinds <= COUNT_KINDS else WRONG
    found = {failure.get("detail") or failure["kind"] for failure in failures} | kinds
    if invention.verdict in (WRONG, COUNTS) and invention.reason and invention.reason not in found:
        return f"{said}: {', '.join(sorted(found))}"
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0], epilog="docs/mutants.md has more.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only entries whose name contains one of them")
    parser.add_argument("--sample", type=float, metavar="SECONDS", help="draw entries at random until the time is up")
    parser.add_argument("--seed", type=int, default=None, help="of the sample, which is printed; default: that of the commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="at a time (default: one per processor)")
    arguments = parser.parse_args()

    inventions = [one for one in parsed(FILE.read_text())
                  if not arguments.words or any(word in one.name for word in arguments.words)]
    if not inventions:
        raise Unreadable(f"no name in {FILE.name} contains {' or '.join(arguments.words)}")
    if arguments.sample is not None:
        seed = draw.seed(arguments.seed)
        print(f"--sample {arguments.sample:g} --seed {seed}")
        random.Random(seed).shuffle(inventions)

    begin, done, unlike = time.monotonic(), 0, 0
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        def one(invention: Invention) -> str | None:
            late = arguments.sample is not None and time.monotonic() - begin > arguments.sample
            return None if late else judged(invention)

        for invention, said in zip(inventions, pool.map(one, inventions)):
            if said is None:
                continue
            done += 1
            expected = {PASSES: RIGHT, THOROUGH: WRONG}.get(invention.verdict, invention.verdict)
            if said != expected:
                unlike += 1
                asked = f"{invention.verdict}: {invention.reason}" if invention.reason else invention.verdict
                print(f"{invention.name} in {invention.rung}: {said}, not {asked}", flush=True)
    print(f"{done} of {len(inventions)} invented kernels were judged, {unlike} not as {FILE.name} says.")
    return 1 if unlike else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unreadable, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        sys.exit(2)
