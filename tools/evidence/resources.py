"""Registers and spills of every kernel, as ptxas reported them when the GPU half was built, against stage.cu's bounds.

The build leaves ptxas -v's words in *.ptxas beside each object (harness/evidence/ptxas_log). The bounds are the
`.resources` of a stage.cu; they hold for the default variant, the first of its `.variants`, and for every kernel of a
rung without a Config. Spilled bytes are those of the stack frame, per thread, as cudaFuncGetAttributes reports them
too: the kernels keep nothing else there. How many bytes the code stores and loads again is shown beside them.
Exit code: 0 within the bounds; 1 not; 2 something is missing or cannot be read; 77 built without nvcc, or by its front end alone.
"""
from __future__ import annotations

import argparse
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import results, rungs
from tools.evidence.ncu import CANNOT_RUN_HERE, exit_code, Failure, short_name
from tools.paths import ROOT

ARCHITECTURES = (80, 90)


@dataclass(frozen=True)
class Kernel:
    """One kernel for one architecture."""

    stage: str
    name: str  # "flash_attention<64, 128, 4>"
    is_default: bool
    sm: int
    registers: int
    spill: int
    spill_stores: int
    spill_loads: int


def demangled(names: list[str]) -> list[str]:
    """Kernel names with template arguments, without return type, namespace and parameters."""
    try:
        run = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"c++filt (package binutils) does not run: {error}", 2) from None
    return [short_name(name) for name in run.stdout.splitlines()]


def arguments_of(name: str) -> list[str]:
    """["64", "128", "1"] of flash_attention<64, 128, true>, as some write it, and of Config<64, 128, 1>."""
    found = re.search(r"<([^<>]*)>", name)
    words = [argument.strip() for argument in found.group(1).split(",")] if found else []
    return [{"false": "0", "true": "1"}.get(word, word.rstrip("u")) for word in words]


def variant_of(kernel: str, rung: rungs.Rung) -> rungs.Variant | None:
    """The variant that a compiled kernel belongs to: the one with most of its template arguments, whose end a variant
    may leave to their defaults. None where no variant has them."""
    compiled = arguments_of(kernel)
    fitting = [variant for variant in rung.variants if compiled[:len(arguments_of(variant.config))] == arguments_of(variant.config)]
    return max(fitting, key=lambda variant: len(arguments_of(variant.config)), default=None)


def architectures(rung: rungs.Rung) -> set[int]:
    """Those that a bound must be stated for: what `.min_sm` leaves."""
    return {sm for sm in ARCHITECTURES if sm >= rung.min_sm}


def parse(rung: rungs.Rung, log: Path) -> list[Kernel]:
    """The kernels of one rung's ptxas log, for the GPUs that it runs on: for older ones the code ends at what they do
    not have."""
    pattern = re.compile(
        r"Compiling entry function '(?P<name>\w+)' for 'sm_(?P<sm>\d+)\w*'.*?"
        r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
        r"Used (?P<registers>\d+) registers", re.DOTALL)
    found = list(pattern.finditer(log.read_text(encoding="utf-8")))
    if not found:
        raise Failure(f"{log}: no kernel in it; delete {log.with_suffix('')} and build again", 2)
    names = demangled([entry["name"] for entry in found])
    kernels = []
    for name, entry in zip(names, found):
        if int(entry["sm"]) < rung.min_sm:
            continue
        is_default = variant_of(name, rung) == rung.default
        kernels.append(Kernel(rung.name, name, is_default, int(entry["sm"]), int(entry["registers"]), int(entry["stack"]),
                              int(entry["stores"]), int(entry["loads"])))
    return sorted(kernels, key=lambda kernel: (not kernel.is_default, kernel.name, kernel.sm))


def told(build: Path, name: str) -> str:
    """What the build was told of a variable; empty where nothing."""
    cache = build / "CMakeCache.txt"
    found = re.search(rf"^{name}:\w+=(.+)$", cache.read_text(encoding="utf-8") if cache.exists() else "", re.MULTILINE)
    return found.group(1) if found else ""


def asked_for(build: Path) -> set[int]:
    """The architectures of the build, where it was told of any."""
    return {int(sm) for sm in re.findall(r"\d+", told(build, "LADDER_CUDA_ARCHITECTURES"))} or set(ARCHITECTURES)


def faults(rung: rungs.Rung, kernels: list[Kernel], asked: set[int]) -> list[str]:
    """Where a rung's default kernels exceed its bounds, or are not held to any."""
    found = []
    stage, limits = rung.name, rung.resources
    if not any(kernel.is_default for kernel in kernels):
        found.append(f"{stage}: no compiled kernel has the template arguments of stage.cu's first variant, {rung.default.config or rung.default.label}")
    for sm in sorted(architectures(rung) - {limit.sm for limit in limits}):
        found.append(f"{stage}: stage.cu states no bound for sm_{sm}")
    for limit in limits:
        compiled = [kernel for kernel in kernels if kernel.is_default and kernel.sm == limit.sm]
        if not compiled and limit.sm in asked:
            found.append(f"{stage}: nothing was compiled for sm_{limit.sm}")
        for kernel in compiled:
            if kernel.registers > limit.registers:
                found.append(f"{stage}: {kernel.name} takes {kernel.registers} registers on sm_{kernel.sm}; "
                             f"stage.cu allows {limit.registers}")
            if kernel.spill > limit.spill_bytes:
                found.append(f"{stage}: {kernel.name} spills {kernel.spill} bytes on sm_{kernel.sm}; "
                             f"stage.cu allows {limit.spill_bytes}")
    return found


def nvcc_version(build: Path) -> str:
    """The release that built the objects, from CMake's record; empty when unknown."""
    for record in build.glob("CMakeFiles/*/CMakeCUDACompiler.cmake"):
        found = re.search(r'CMAKE_CUDA_COMPILER_VERSION "([^"]+)"', record.read_text(encoding="utf-8"))
        if found:
            return found.group(1)
    return ""


def print_table(kernels: list[Kernel], nvcc: str) -> None:
    print(f"nvcc {nvcc or 'of an unknown release'}; another release may need other bounds")
    print(f"{'stage':<14}{'kernel':<50}{'sm':>4}{'registers':>11}{'spilled B':>11}{'stored B':>10}{'loaded B':>10}")
    for kernel in kernels:
        name = kernel.name + ("" if kernel.is_default else "  (ablation)")
        print(f"{kernel.stage:<14}{name:<50}{kernel.sm:>4}{kernel.registers:>11}"
              f"{kernel.spill:>11}{kernel.spill_stores:>10}{kernel.spill_loads:>10}")


def rows(kernels: list[Kernel], nvcc: str) -> list[dict]:
    """Of the table that --csv writes."""
    return [{"stage": kernel.stage, "kernel": kernel.name, "default": int(kernel.is_default), "sm": kernel.sm,
             "registers": kernel.registers, "spill_bytes": kernel.spill, "spill_store_bytes": kernel.spill_stores,
             "spill_load_bytes": kernel.spill_loads, "nvcc": nvcc} for kernel in kernels]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, nargs="?", default=ROOT / "build", help="build directory (default: build)")
    parser.add_argument("--csv", type=Path, help="also write the table there, all architectures and variants")
    arguments = parser.parse_args()

    def work() -> None:
        kernels: list[Kernel] = []
        wrong: list[str] = []
        logs = {rung.name: next(arguments.build.glob(f"**/stage_{rung.path.name}_gpu.dir/**/*.ptxas"), None) for rung in rungs.known()}
        if "-fdevice-syntax-only" in told(arguments.build, "CMAKE_CUDA_FLAGS"):
            raise Failure(f"{arguments.build}: nvcc read the kernels and compiled none (-fdevice-syntax-only)", CANNOT_RUN_HERE)
        if not any(logs.values()):
            raise Failure(f"{arguments.build}: no ptxas reports; the GPU half was not built (it needs nvcc)", CANNOT_RUN_HERE)
        for rung in rungs.known():
            log = logs[rung.name]
            if log is None:
                raise Failure(f"{arguments.build}: no ptxas report for {rung.name}; build again", 2)
            compiled = parse(rung, log)
            kernels += compiled
            wrong += faults(rung, compiled, asked_for(arguments.build))
        nvcc = nvcc_version(arguments.build)
        print_table(kernels, nvcc)
        if arguments.csv:
            results.write_table(arguments.csv, rows(kernels, nvcc))
        if wrong:
            raise Failure("\n".join(wrong))

    return exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
