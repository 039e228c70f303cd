"""What the scripts that run Nsight Compute share: the command line, its table, and the names of kernels."""
from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools import rungs

CANNOT_RUN_HERE = 77

STALLS = tuple(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
               for reason in ("barrier", "dispatch_stall", "gmma", "long_scoreboard", "math_pipe_throttle", "mio_throttle",
                              "no_instruction", "not_selected", "short_scoreboard", "wait"))


class Failure(Exception):
    """A program that did not do its work, and the end of what it said."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Launch:
    """One profiled launch: metric -> (unit, value), values as ncu wrote them."""

    kernel: str
    metrics: dict[str, tuple[str, str]]


def exit_code(work: Callable[[], None]) -> int:
    """Runs a script's work. What stops it becomes one message on stderr and the exit code."""
    try:
        work()
    except Failure as failure:
        print(failure, file=sys.stderr)
        return failure.code
    except rungs.RungsError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def require(program: str, way_out: str = "") -> None:
    if not shutil.which(program):
        raise Failure(f"{program} is not on PATH; it comes with the CUDA Toolkit.{way_out}", CANNOT_RUN_HERE)


def output_of(command: list[str]) -> str:
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise Failure(f"{command[0]}: {error.strerror}") from None
    if run.returncode != 0:
        said = (run.stdout + run.stderr).strip().splitlines()[-8:]
        code = CANNOT_RUN_HERE if run.returncode == CANNOT_RUN_HERE else 1
        raise Failure(f"{' '.join(command)} exited with {run.returncode}:\n" + "\n".join(said), code)
    return run.stdout


def short_name(kernel: str) -> str:
    """`flash_attention<64, 128, 4>` of what ncu or c++filt calls the kernel, whose first argument may be a Config of
    these; a second one that is false is left out."""
    name = re.sub(r"\((?:(?:unsigned )?int|bool|anonymous namespace)\)(?:::)?|<unnamed>::", "", kernel)
    name = re.sub(r"<\w+<([^<>]*)>(?:, (?:0|false))? ?>", r"<\1>", name)
    name = re.sub(r"<\w+<([^<>]*)>, (?:1|true) ?>", r"<\1, 1>", name)
    name = re.sub(r", \w+<[^<>]*> ?>(?=\()", ">", name)  # a function that it is compiled with
    found = re.search(r"(\w+(?:<[^()]*>)?)\(", name)
    return found.group(1) if found else kernel


def profiled(command: list[str], metrics: tuple[str, ...], kernels: str = "") -> list[Launch]:
    """Runs a program under ncu and gives its launches in their order, of kernels whose names match the regular
    expression."""
    handle, log = tempfile.mkstemp(suffix=".ncu")
    os.close(handle)
    # Clocks are left alone: what is counted does not depend on them.
    ncu = ["ncu", "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--log-file", log,
           "--metrics", ",".join(metrics)]
    if kernels:
        ncu += ["--kernel-name", f"regex:{kernels}"]
    try:
        failure = None
        try:
            output_of(ncu + command)
        except Failure as failed:  # ncu's own words are in the log
            failure = failed
        text = Path(log).read_text(encoding="utf-8", errors="replace")
    finally:
        os.unlink(log)
    if "ERR_NVGPUCTRPERM" in text:
        raise Failure("ncu may not read the GPU's counters here (ERR_NVGPUCTRPERM). Run as root, or load the driver with "
                      "NVreg_RestrictProfilingToAdminUsers=0.", CANNOT_RUN_HERE)
    if failure:
        errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
        raise Failure("\n".join([str(failure), *errors[-8:]]), failure.code)
    return parsed(text, metrics)


def parsed(text: str, metrics: tuple[str, ...]) -> list[Launch]:
    """The launches of `ncu --csv --page raw`: a line of names, one of units, one line each."""
    table = list(csv.reader(line for line in text.splitlines() if line.startswith('"')))
    if len(table) < 3:
        raise Failure("ncu profiled no kernel; it said:\n" + "\n".join(text.strip().splitlines()[-8:]))
    head, units = table[0], table[1]
    if missing := [metric for metric in metrics if metric not in head]:
        raise Failure(f"this ncu gives no {', '.join(missing)}")
    name = head.index("Kernel Name")
    columns = {metric: head.index(metric) for metric in metrics}
    return [Launch(short_name(row[name] + "("),
                   {metric: (units[column], row[column].replace(",", "")) for metric, column in columns.items()})
            for row in table[2:]]
