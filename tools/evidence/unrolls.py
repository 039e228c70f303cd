"""Which `#pragma unroll` lines of the kernels change machine code, and which change nothing?

Every such line of a rung's kernel.cuh is left out in turn, and the kernels are compared with those of the file as it
is. Rungs share their lines, so the lines are judged together: what counts as one line is a pragma and the loop below
it, byte by byte, in one part of the kernel (LOAD, QK, SOFTMAX, PV, STORE), and it is needed if it changes the code of
any rung that was asked about. At the end all lines that change nothing are left out together, since each of two may be
needed without the other; where that changes a rung, the lines are put back that it takes. Another nvcc may unroll
otherwise.

It prints the lines of which each is needed, and those that are not; --write takes the latter out of the files.
Exit code: 0 every line is needed; 1 some change nothing; 2 usage, or a rung does not compile; 77 there is no nvcc.
"""
from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools import rungs as described
from tools.evidence import machine_code as mc

PRAGMA = re.compile(r"\s*#pragma unroll\b")
PART = re.compile(r"\s*// (LOAD|QK|SOFTMAX|PV|STORE|LAUNCH)\b")


@dataclass(frozen=True)
class Line:
    """What rungs share: the part of the kernel, the pragma, the loop below it, and which of several that read alike it
    is, from 1 on."""

    part: str
    pragma: str
    loop: str  # with its indentation
    occurrence: int

    def __str__(self) -> str:
        return f"{self.part or 'before LOAD'}: {self.loop.strip()}{f' #{self.occurrence}' if self.occurrence > 1 else ''}"


def lines_of(text: str) -> dict[Line, int]:
    """Every pragma of a kernel, and the index of its line."""
    found: dict[Line, int] = {}
    part, lines = "", text.splitlines()
    for index, line in enumerate(lines):
        if match := PART.match(line):
            part = match[1]
        if PRAGMA.match(line):
            occurrence = 1
            while (key := Line(part, line.strip(), lines[index + 1].rstrip(), occurrence)) in found:
                occurrence += 1
            found[key] = index
    return found


class Rung:
    """A stage, compiled as it is and with lines of its kernel left out."""

    def __init__(self, nvcc: str, directory: Path, archs: list[str], scratch: Path):
        self.nvcc, self.directory, self.archs, self.scratch = nvcc, directory, archs, scratch
        self.text = (directory / "kernel.cuh").read_text()
        self.lines = lines_of(self.text)
        self.original = self.compile([])

    def without(self, left_out: list[Line]) -> str:
        indices = {self.lines[line] for line in left_out}
        return "".join(line for index, line in enumerate(self.text.splitlines(True)) if index not in indices)

    def compile(self, left_out: list[Line]) -> list[list[mc.Kernel]]:
        with tempfile.TemporaryDirectory(dir=self.scratch) as name:
            copy = Path(name) / self.directory.name
            copy.mkdir()
            shutil.copy(self.directory / "stage.cu", copy)
            (copy / "kernel.cuh").write_text(self.without(left_out))
            return [mc.compile_stage(self.nvcc, copy, mc.ROOT, arch, copy / "cubin") for arch in self.archs]

    def same(self, left_out: list[Line]) -> bool:
        return self.compile(left_out) == self.original


def needed_together(rung: Rung, left_out: list[Line]) -> list[Line]:
    """Of lines that change nothing one by one, some without which the rest changes nothing together."""
    back: list[Line] = []
    kept_out: list[Line] = []
    if not left_out or rung.same(left_out):
        return back
    for line in left_out:
        (kept_out if rung.same(kept_out + [line]) else back).append(line)
    return back


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="3, 03, kvpipe or 03_kvpipe; without one, all")
    parser.add_argument("--arch", action="append", metavar="SM",
                        help="80, 90a; may be repeated (default: 90a; a rung gets those that it runs on)")
    parser.add_argument("--write", action="store_true", help="take the lines that change nothing out of the files")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (default: 2)")
    options = parser.parse_args()
    nvcc = mc.find_nvcc()
    if nvcc is None:
        print("unrolls: there is no nvcc. Put it on PATH, or set CUDACXX.", file=sys.stderr)
        return mc.CANNOT_RUN
    with tempfile.TemporaryDirectory(prefix="unrolls.") as directory, ThreadPoolExecutor(max(1, options.jobs)) as pool:
        try:
            wanted = options.arch or ["90a"]

            # On the GPUs that it runs on: for older ones half of it is left out.
            def original(rung: described.Rung) -> Rung:
                archs = [arch for arch in wanted if int(arch.rstrip("a")) >= rung.min_sm]
                return Rung(nvcc, rung.path, archs, Path(directory))

            rungs = list(pool.map(original, described.chosen(options.stages)))
            work = [(rung, line) for rung in rungs for line in rung.lines]
            needed: dict[Line, list[str]] = defaultdict(list)  # and by which rungs
            for at, ((rung, line), same) in enumerate(zip(work, pool.map(lambda item: item[0].same([item[1]]), work)), 1):
                if not same:
                    needed[line].append(rung.directory.name)
                if sys.stderr.isatty():
                    print(f"\r{at} of {len(work)} lines", end="", file=sys.stderr, flush=True)
            again = True
            while again:  # what one rung needs stays in all, and that may change what another one needs
                again = False
                idle = [[line for line in rung.lines if line not in needed] for rung in rungs]
                for rung, back in zip(rungs, pool.map(needed_together, rungs, idle)):
                    for line in back:
                        needed[line].append(rung.directory.name)
                        again = True
        except (mc.CodeError, described.RungsError) as error:
            pool.shutdown(cancel_futures=True)
            print(f"unrolls: {error}", file=sys.stderr)
            return mc.USAGE
    if sys.stderr.isatty():
        print(file=sys.stderr)
    everywhere = list(dict.fromkeys(line for rung in rungs for line in rung.lines))
    idle = [line for line in everywhere if line not in needed]
    for title, lines in (("Needed", [line for line in everywhere if line in needed]), ("Change nothing", idle)):
        print(f"{title}:" if lines else f"{title}: none.")
        for line in lines:  # several that differ in their indentation read alike
            stand = [rung.directory.name for rung in rungs if line in rung.lines]
            by = f"{', '.join(sorted(set(needed[line])))} of " if line in needed else ""
            print(f"  {line}\n      {by}{len(stand)} rungs from {stand[0]} on")
    if options.write:
        for rung in rungs:
            (rung.directory / "kernel.cuh").write_text(rung.without([line for line in rung.lines if line in idle]))
    return mc.DIFFERENT if idle else mc.DONE


if __name__ == "__main__":
    sys.exit(main())
