"""What the hardware counted: Nsight Compute's metrics and the instructions of the machine code, per kernel, as CSV.

Needs a GPU, ncu and cuobjdump. ncu profiles one launch of every variant of every stage, at a shape small enough to be
quick and large enough to fill the GPU; clocks are left alone, so these are counts and shares, not times. Metrics keep
ncu's own names; `sass.HMMA` is the number of HMMA instructions in the kernel's machine code.
Exit code: 0 done; 1 a program failed; 2 usage, or a file cannot be read or written; 77 ncu or cuobjdump is missing.
"""
from __future__ import annotations

import argparse
import collections
import csv
import datetime
import re
import sys
from pathlib import Path

from tools import rungs
from tools.evidence import ncu
from tools.evidence.ncu import output_of
from tools.paths import ROOT

COLUMNS = "stage,kernel,gpu,batch,heads,n,d,metric,unit,value,commit,date".split(",")

METRICS = (
    "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__inst_executed.sum", "sm__warps_active.avg.per_cycle_active",
    *ncu.STALLS,
)
OPCODES = ("HMMA HGMMA WARPGROUP UTMALDG UTMASTG SYNCS R2UR LDSM STSM LDGSTS LDG STS STG LDL STL MUFU FFMA FMUL FADD FMNMX SHFL F2FP "
           "BAR LOP3 IADD3 IMAD LEA MOV").split()


def template_name(mangled: str) -> str:
    """ncu.short_name of `_ZN..15flash_attentionINS_6ConfigILi64ELi128ELi4EEEEEv15AttentionParams`, without a
    demangler."""
    found = re.search(r"\d([a-z_]+?)(?:I(?:\w*?ConfigI)?((?:L[ibj]\d+E)+)E*(?:Lb([01])E)?E*)?E?v?15AttentionParams", mangled)
    if not found:
        return mangled
    values = re.findall(r"L[ibj](\d+)E", found.group(2) or "")  # a bool is 0 or 1, as ncu writes it
    if found.group(3) == "1":  # behind a Config
        values.append("1")
    return found.group(1) + (f"<{', '.join(values)}>" if values else "")


def profiled(ladder: Path, stage: str, kernels: set[str], shape: list[str]) -> list[tuple[str, str, str, str]]:
    """(kernel, metric, unit, value) of the first launch of each of the stage's kernels."""
    command = [str(ladder), "check", stage, "--on", "gpu", "--ablate", "--inputs", "normal", *shape]
    first = {}
    for launch in ncu.profiled(command, METRICS, f"^({'|'.join(sorted(kernels))})$"):
        first.setdefault(launch.kernel, launch)
    return [(kernel, metric, unit, value) for kernel, launch in first.items()
            for metric, (unit, value) in launch.metrics.items()]


def disassembled(object_file: Path, sm: int) -> list[tuple[str, str, str, str]]:
    """(kernel, sass.OPCODE, "inst", count) of every kernel of an object file, for one architecture."""
    counts: dict[str, collections.Counter[str]] = {}
    is_wanted, current = False, None
    for line in output_of(["cuobjdump", "--dump-sass", str(object_file)]).splitlines():
        if found := re.search(r"arch = sm_(\d+)", line):
            is_wanted, current = int(found.group(1)) == sm, None
        elif found := re.search(r"Function : (\S+)", line):
            current = counts.setdefault(template_name(found.group(1)), collections.Counter()) if is_wanted else None
        elif current is not None and (found := re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z0-9]+)", line)):
            current[found.group(1)] += 1
            current["all"] += 1
    return [(kernel, f"sass.{opcode}", "inst", str(count[opcode])) for kernel, count in counts.items()
            for opcode in (*OPCODES, "all")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help="stages (default: all)")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build directory (default: build)")
    parser.add_argument("--csv", type=Path, required=True, help="file to write, e.g. docs/results/h200_counters.csv")
    parser.add_argument("--batch", default="2")
    parser.add_argument("--heads", default="16")
    parser.add_argument("--n", default="4096")
    parser.add_argument("--commit", default="unknown", help="what to write into the commit column")
    arguments = parser.parse_args()
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    shape = ["--batch", arguments.batch, "--heads", arguments.heads, "--n", arguments.n]

    def work() -> None:
        ncu.require("ncu")
        ncu.require("cuobjdump")
        stages = rungs.chosen(arguments.stages)
        gpu, capability = (word.strip() for word in output_of(query).splitlines()[0].split(","))
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for rung in stages:
                stage = rung.name
                print(stage, file=sys.stderr)
                objects = arguments.build / "CMakeFiles" / f"stage_{rung.path.name}_gpu.dir" / rung.directory / "stage.cu.o"
                instructions = disassembled(objects, int(capability.replace(".", "")))
                kernels = {kernel.partition("<")[0] for kernel, *_ in instructions}
                rows = profiled(arguments.build / "ladder", stage, kernels, shape) + instructions
                for kernel, metric, unit, value in rows:
                    writer.writerow([stage, kernel, gpu, arguments.batch, arguments.heads, arguments.n, "128", metric, unit,
                                     value, arguments.commit, datetime.date.today().isoformat()])
                file.flush()

    return ncu.exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
