#!/usr/bin/env python3
"""What the hardware counted: Nsight Compute's metrics and the instructions of the machine code, per kernel, as CSV.

Needs a GPU, ncu and cuobjdump. ncu profiles one launch of every variant of every stage, at a shape small enough to be
quick and large enough to fill the GPU; clocks are left alone, so these are counts and shares, not times. Metrics keep
ncu's own names; `sass.HMMA` is the number of HMMA instructions in the kernel's machine code.
Exit code: 0 done; 1 a program failed; 2 usage; 77 ncu or cuobjdump is missing.
"""
from __future__ import annotations

import argparse
import collections
import csv
import datetime
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = "stage,kernel,gpu,batch,heads,n,d,metric,unit,value,commit,date".split(",")

METRICS = (
    "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "smsp__issue_active.avg.pct_of_peak_sustained_active", "smsp__inst_executed.sum", "sm__warps_active.avg.per_cycle_active",
    *(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
      for reason in ("barrier", "dispatch_stall", "long_scoreboard", "math_pipe_throttle", "mio_throttle", "not_selected",
                     "selected", "short_scoreboard", "wait")),
)
OPCODES = "HMMA LDSM LDGSTS LDG STS STG LDL STL MUFU FFMA FMUL FADD FMNMX SHFL F2FP BAR LOP3 IADD3 IMAD LEA MOV".split()


class Failure(Exception):
    """A program that did not do its work, and the end of what it said."""


def output_of(command: list[str]) -> str:
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        said = (run.stdout + run.stderr).strip().splitlines()[-8:]
        raise Failure(f"{' '.join(command)} exited with {run.returncode}:\n" + "\n".join(said))
    return run.stdout


def short_name(kernel: str) -> str:
    """`flash_attention<64, 128, 4>` of what ncu or c++filt calls the kernel."""
    plain = kernel.replace("(bool)0", "false").replace("(bool)1", "true")
    found = re.search(r"(\w+(?:<[^()]*>)?)\(", re.sub(r"\((?:int|anonymous namespace)\)", "", plain))
    return found.group(1) if found else kernel


def template_name(mangled: str) -> str:
    """The same name out of `_ZN..15flash_attentionILi64ELi128ELi4EEEv15AttentionParams`, without a demangler."""
    found = re.search(r"\d([a-z_]+?)(?:I((?:L[ib]\d+E)+)E)?E?v?15AttentionParams", mangled)
    if not found:
        return mangled
    values = [{"i0": "0", "b0": "false", "b1": "true"}.get(kind + digits, digits)
              for kind, digits in re.findall(r"L([ib])(\d+)E", found.group(2) or "")]
    return found.group(1) + (f"<{', '.join(values)}>" if values else "")


def profiled(ladder: Path, stage: str, shape: list[str]) -> list[tuple[str, str, str, str]]:
    """(kernel, metric, unit, value) of the first launch of each of the stage's kernels."""
    is_naive = stage.startswith("00")
    command = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--metrics", ",".join(METRICS),
               "--kernel-name", "regex:^(scores|softmax|output)$" if is_naive else "regex:flash_attention",
               str(ladder), "check", stage, "--on", "gpu", "--ablate", "--inputs", "normal", *shape]
    lines = [line for line in output_of(command).splitlines() if line.startswith('"')]
    table = list(csv.reader(lines))
    if len(table) < 3:
        raise Failure(f"ncu profiled no kernel of {stage}; try: {' '.join(command)}")
    head, units = table[0], table[1]
    found, seen = [], set()
    for launch in table[2:]:
        kernel = short_name(launch[head.index("Kernel Name")] + "(")
        if kernel in seen:
            continue
        seen.add(kernel)
        for metric in METRICS:
            column = head.index(metric)
            found.append((kernel, metric, units[column], launch[column].replace(",", "")))
    return found


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
    for program in ("ncu", "cuobjdump"):
        if not shutil.which(program):
            print(f"{program} is not on PATH; it comes with the CUDA Toolkit.", file=sys.stderr)
            return 77
    stages = sorted(path.parent.name for path in ROOT.glob("[0-9][0-9]*_*/stage.cu"))
    if arguments.stages:
        stages = [stage for stage in stages if any(stage.startswith(wanted) for wanted in arguments.stages)]
    query = ["nvidia-smi", "--query-gpu=name,compute_cap", "--format=csv,noheader"]
    shape = ["--batch", arguments.batch, "--heads", arguments.heads, "--n", arguments.n]
    try:
        gpu, capability = (word.strip() for word in output_of(query).splitlines()[0].split(","))
        with arguments.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(COLUMNS)
            for stage in stages:
                print(stage, file=sys.stderr)
                rows = profiled(arguments.build / "ladder", stage, shape)
                objects = arguments.build / "CMakeFiles" / f"stage_{stage}_gpu.dir" / stage / "stage.cu.o"
                rows += disassembled(objects, int(capability.replace(".", "")))
                for kernel, metric, unit, value in rows:
                    writer.writerow([stage, kernel, gpu, arguments.batch, arguments.heads, arguments.n, "128", metric, unit,
                                     value, arguments.commit, datetime.date.today().isoformat()])
                file.flush()
    except (Failure, OSError) as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
