"""The machine code of a rung's kernels: stage.cu compiled by nvcc to a cubin, and the kernels' sections read from it.

For same_code and row_kernels. Two kernels are compared byte by byte: names, symbols and line numbers play no part.
"""
from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tools import rungs

ROOT = rungs.root()
INSTRUCTION_BYTES = 16  # from Volta on
DONE, DIFFERENT, USAGE, CANNOT_RUN = 0, 1, 2, 77


class CodeError(Exception):
    """What cannot be compiled or read, and why."""


@dataclass(frozen=True)
class Kernel:
    """One compiled kernel. Its identity is its function and the numbers among its template arguments, in their
    order."""

    function: str  # "flash_attention"
    arguments: tuple[str, ...]  # "64", "128", "4", "true": those of flash_attention<64, 128, 4, true> or of its Config
    code: bytes

    @property
    def name(self) -> str:
        return f"{self.function}<{', '.join(self.arguments)}>" if self.arguments else self.function

    @property
    def instructions(self) -> list[bytes]:
        return [self.code[at : at + INSTRUCTION_BYTES] for at in range(0, len(self.code), INSTRUCTION_BYTES)]


def find_nvcc() -> str | None:
    """The compiler: CUDACXX, PATH, or where the toolkit is installed by default."""
    for candidate in (os.environ.get("CUDACXX"), "nvcc", "/usr/local/cuda/bin/nvcc"):
        if candidate and (found := shutil.which(candidate)):
            return found
    return None


def stage_directories(tree: Path) -> dict[str, Path]:
    """Every rung of a tree, by name, in order: "03_kvpipe" and where it lies."""
    found = {}
    for part in (tree, *sorted(path for path in tree.iterdir() if path.is_dir() and not path.name.startswith((".", "build")))):
        for file in sorted(part.glob("*_*/stage.cu")):
            found[file.parent.name] = file.parent
    return dict(sorted(found.items()))


def chosen_stages(names: list[str], stages: dict[str, Path]) -> list[str]:
    """The stages that 3, 03, kvpipe or 03_kvpipe name; all without a name. Raises CodeError for a name that is none."""
    chosen = []
    for name in names:
        word = name.strip("/").lower()
        if re.fullmatch(r"\d[a-z]{0,2}", word):
            word = "0" + word
        found = [stage for stage in stages if word in (stage, stage.split("_")[0], stage.split("_", 1)[1])]
        if not found:
            raise CodeError(f"No stage is called {name}. Stages: {' '.join(stages)}.")
        chosen += found
    return chosen or list(stages)


def compile_stage(nvcc: str, stage: Path, tree: Path, arch: str, cubin: Path) -> list[Kernel]:
    """Compiles the stage.cu of `stage` against the headers of `tree`; the cubin is removed again."""
    command = [nvcc, "-std=c++20", "-O3", "-DNDEBUG", f"-I{tree}", f'-DLADDER_SOURCE_DIR="{tree}"',
               f"-gencode=arch=compute_{arch},code=sm_{arch}", "-cubin", "-o", str(cubin), str(stage / "stage.cu")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise CodeError(f"{stage.name} does not compile for sm_{arch}:\n{(run.stderr or run.stdout).strip()}")
    try:
        return kernels(cubin.read_bytes())
    finally:
        cubin.unlink()


def kernels(cubin: bytes) -> list[Kernel]:
    """The kernels of a cubin, which is an ELF file with a section .text.NAME for each."""
    if cubin[:5] != b"\x7fELF\x02":
        raise CodeError("The compiler's output is no 64-bit ELF file.")
    section_table, = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)

    def section(index: int) -> tuple[int, int, int]:  # where its name stands, its bytes' offset, and how many they are
        name, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", cubin, section_table + index * entry_bytes)
        return name, offset, size

    names = section(names_index)[1]
    found = []
    for index in range(count):
        name_at, offset, size = section(index)
        name = cubin[names + name_at : cubin.index(b"\0", names + name_at)].decode()
        if name.startswith(".text."):
            found.append(Kernel(*parse_symbol(name.removeprefix(".text.")), cubin[offset : offset + size]))
    return sorted(found, key=lambda kernel: kernel.name)


def parse_symbol(symbol: str) -> tuple[str, tuple[str, ...]]:
    """Function and numeric template arguments of a mangled name: _ZN4_...15flash_attentionI6ConfigILi64EEEEv...: 64."""
    at = re.match(r"_ZN?", symbol)
    if not at:
        return symbol, ()
    position, function = at.end(), ""
    while length := re.match(r"\d+", symbol[position:]):
        start = position + length.end()
        function = symbol[start : start + int(length[0])]
        position = start + int(length[0])
    rest = symbol[position:]
    if not rest.startswith("I"):
        return function, ()
    literals = re.findall(r"L([a-z])(n?)(\d+)E", rest)
    return function, tuple({"0": "false", "1": "true"}[digits] if kind == "b" else ("-" if minus else "") + digits
                           for kind, minus, digits in literals)


def pairs(before: list[Kernel], after: list[Kernel]) -> list[tuple[Kernel | None, Kernel | None]]:
    """Which kernel became which: by name, then, of those that are left, by equal code. None stands for no partner."""
    rest, found = list(after), []

    def take(wanted: Kernel, *same: str) -> Kernel | None:
        for other in rest:
            if all(getattr(other, what) == getattr(wanted, what) for what in same):
                rest.remove(other)
                return other
        return None

    partners: dict[int, Kernel | None] = {}
    for rule in (("name", "code"), ("name",), ("code",)):
        for index, kernel in enumerate(before):
            if partners.get(index) is None:
                partners[index] = take(kernel, *rule)
    found = [(kernel, partners[index]) for index, kernel in enumerate(before)]
    return found + [(None, kernel) for kernel in rest]


def difference(before: Kernel, after: Kernel) -> str:
    """In words what became of the code; empty if it is the same."""
    if before.code == after.code:
        return ""
    old, new = before.instructions, after.instructions
    if len(old) == len(new):
        changed = sum(a != b for a, b in zip(old, new))
        count = sum(a != b for a, b in zip(before.code, after.code))
        return f"{changed} of {len(old)} instructions differ ({count} bytes)"
    kept = (Counter(old) & Counter(new)).total()
    return f"{len(old)} instructions before, {len(new)} after, of which {kept} are the same"
