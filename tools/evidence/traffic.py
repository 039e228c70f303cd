"""Bytes at every level of the memory hierarchy, for each stage over N, under the names of whoever counted them.

On a GPU (the default) Nsight Compute profiles one checked launch of each stage at each N (`ladder explain --on gpu`),
and the card says how much memory it holds meanwhile. With --emulator the emulator counts instead, and the IO model of
harness/problem/formula.cpp stands beside it. The tables are printed; --csv also writes them, one row per stage, shape
and metric: rows that are in the file already are replaced, others are kept.

A stage of several kernels has the sum of them; of shares and rates, their mean weighted by gpu__time_duration.sum. On a
GPU all run at 16 heads and batch x N = 16384, as in `ladder bench --sweep`, and memory is compared at batch 1 and 2
heads; the emulator runs one head.
Exit code: 0 done; 1 a program failed; 2 usage, or a file cannot be read or written; 77 no GPU, no ncu, or no right to use it.
"""
from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tools import results, rungs
from tools.evidence import ncu
from tools.evidence.ncu import Failure
from tools.paths import ROOT

COLUMNS, KEY = results.columns("traffic"), results.SCHEMA["traffic"]["identity"]
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
EMULATED_LENGTHS = (256, 512, 1024, 2048, 4096)
TOKENS, HEADS = results.SWEEP_TOKENS, results.HEADLINE["heads"]
SMALL = {"batch": 1, "heads": 2}
DURATION = "gpu__time_duration.sum"
BETWEEN = "fill"  # the kernel that poisons the output before each launch

METRICS = (
    DURATION, "dram__bytes_read.sum", "dram__bytes_write.sum", "lts__t_bytes.sum", "lts__t_sector_hit_rate.pct",
    "l1tex__t_sector_hit_rate.pct", "l1tex__t_bytes_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_bytes_pipe_lsu_mem_global_op_st.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active", "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__warps_active.avg.per_cycle_active",
    # How fast the memories could go at most, at the clocks of this run: the slopes of the roofline.
    "dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second",
    "lts__t_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second",
    *ncu.STALLS,
)

Row = dict[str, str]


def explain(ladder: Path, stages: list[str], shape: dict[str, int], lengths: Iterable[int], *more: str) -> list[str]:
    sizes = [word for name, value in shape.items() for word in (f"--{name}", str(value))]
    return [str(ladder), "explain", *stages, "--n", ",".join(map(str, lengths)), *sizes, *more]


def run_json(command: list[str], runner=ncu.output_of):
    """What the command writes to --json, and what the runner returns."""
    handle, path = tempfile.mkstemp(suffix=".json")
    os.close(handle)
    try:
        returned = runner([*command, "--json", path])
        return json.loads(Path(path).read_text(encoding="utf-8")), returned
    finally:
        os.unlink(path)


def row(entry: dict, gpu: str, metric: str, value: float | int, source: str) -> Row:
    shape = {name: str(entry[name]) for name in ("stage", "batch", "heads", "n", "d")}
    text = str(value) if isinstance(value, int) else f"{value:.10g}"
    return {**shape, "gpu": gpu, "causal": str(int(entry["causal"])), "metric": metric, "value": text, "source": source}


def combined(launches: list[ncu.Launch], metric: str) -> float | None:
    """A stage's value from those of its kernels; None where ncu has no number."""
    try:
        values = [float(launch.metrics[metric][1]) for launch in launches]
        weights = [float(launch.metrics[DURATION][1]) for launch in launches]
    except ValueError:
        return None
    if metric.endswith(".sum"):
        return sum(values)
    return sum(value * weight for value, weight in zip(values, weights)) / sum(weights)


def groups(launches: list[ncu.Launch]) -> list[list[ncu.Launch]]:
    """The launches of each stage: what stands between two fills."""
    found: list[list[ncu.Launch]] = [[]]
    for launch in launches:
        if launch.kernel == BETWEEN:
            found.append([])
        else:
            found[-1].append(launch)
    return [group for group in found if group]


def profile(ladder: Path, stages: list[str], shape: dict[str, int], lengths: Iterable[int], *more: str) -> list[Row]:
    """One row per stage, N and metric."""
    command = explain(ladder, stages, shape, lengths, "--on", "gpu", *more)
    entries, launches = run_json(command, lambda words: ncu.profiled(words, METRICS))
    runs = groups(launches)
    if len(runs) != len(entries):
        raise Failure(f"ncu saw the kernels of {len(runs)} runs, but the ladder made {len(entries)}: {' '.join(command)}")
    rows = []
    for entry, run in zip(entries, runs):
        for metric in METRICS:
            value = combined(run, metric)
            if value is None:
                print(f"{entry['stage']}: ncu has no number for {metric}", file=sys.stderr)
            else:
                rows.append(row(entry, entry["gpu"], metric, int(value) if value.is_integer() else value, "measured"))
    return rows


def measured(ladder: Path, stages: list[str], lengths: Iterable[int], more: list[str]) -> list[Row]:
    """All rows of a GPU. The run without ncu comes first: it says what can run here, and proves each launch right."""
    lengths = list(lengths)
    print("device memory", file=sys.stderr)
    entries, _ = run_json(explain(ladder, stages, SMALL, lengths, "--on", "gpu", *more))
    rows = [row(entry, entry["gpu"], "cuda.memory_used_bytes", entry["cuda.memory_used_bytes"], "measured")
            for entry in entries]
    ran = [stage for stage in stages if any(entry["stage"] == stage for entry in entries)]
    for n in lengths if ran else []:
        print(f"{', '.join(ran)} at N = {n}", file=sys.stderr)
        rows += profile(ladder, ran, {"batch": max(1, TOKENS // n), "heads": HEADS}, [n], *more)
    return rows


def emulated(ladder: Path, stages: list[str], lengths: Iterable[int], more: list[str]) -> list[Row]:
    rows = []
    for stage in stages:
        for n in lengths:
            print(f"{stage} at N = {n}", file=sys.stderr)
            try:
                entries, _ = run_json(explain(ladder, [stage], {"batch": 1, "heads": 1}, [n], "--on", "cpu", *more))
            except Failure as refused:  # a shape that this stage does not take
                print(refused, file=sys.stderr)
                continue
            for entry in entries:
                counters = entry["counters"]
                names = ["gmem_bytes_read", "gmem_bytes_written", "smem_wavefronts", "smem_wavefronts_ideal"]
                names += ["gmem_bytes_reduced"] if counters.get("gmem_bytes_reduced") else []  # where blocks add to a sum: backward
                rows += [row(entry, "", f"emulator.{name}", counters[name], "emulator") for name in names]
                if "backward" not in entry.get("problem", ""):  # pictures draw the forward pass's model beside these
                    rows.append(row(entry, "", "model.io_bytes", int(entry["io_model_bytes"]), "model"))
    return rows


def order(entry: Row) -> tuple:
    return (*rungs.position(entry["stage"]), entry["source"], entry["gpu"], entry["causal"], int(entry["d"]), int(entry["n"]),
            int(entry["batch"]), int(entry["heads"]))


def key(entry: Row) -> tuple:
    return tuple(entry[column] for column in KEY)


def read(path: Path) -> dict[tuple, Row]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise Failure(f"{path}: its columns are not {','.join(COLUMNS)}")
        return {key(old): old for old in reader}


def check(path: Path, rows: list[Row]) -> None:
    """Holds the file to rows counted just now, where it has them."""
    recorded = read(path)
    known = [new for new in rows if key(new) in recorded]
    stale = [f"{new['stage']} at N = {new['n']}: {new['metric']} is {new['value']}, {path} has {recorded[key(new)]['value']}"
             for new in known if recorded[key(new)]["value"] != new["value"]]
    if stale or not known:
        raise Failure("\n".join(stale or [f"{path} has none of these rows"]) + f"\n  Renew it:  {Path(sys.argv[0]).name} --emulator --csv {path}")


def write(path: Path, rows: list[Row], commit: str) -> None:
    """Adds the rows to the file; those that it has already at the same stage, shape, metric and source give way."""
    kept = read(path) if path.is_file() and path.stat().st_size else {}
    today = datetime.date.today().isoformat()
    for new in rows:
        kept[key(new)] = {**new, "commit": commit, "date": today}
    results.write_table(path, sorted(kept.values(), key=order), COLUMNS)


def print_tables(rows: list[Row]) -> None:
    """For each stage, metrics down and N across."""
    for stage in dict.fromkeys(entry["stage"] for entry in rows):
        mine = [entry for entry in rows if entry["stage"] == stage]
        lengths = sorted({int(entry["n"]) for entry in mine})
        print(f"\n{stage:<78}" + "".join(f"{'N = ' + str(n):>18}" for n in lengths))
        shapes = dict.fromkeys((entry["metric"], entry["batch"] if len(lengths) == 1 else "", entry["heads"]) for entry in mine)
        for metric, _, heads in shapes:
            cells = {int(entry["n"]): entry["value"] for entry in mine if (entry["metric"], entry["heads"]) == (metric, heads)}
            print(f"{metric:<78}" + "".join(f"{cells.get(n, ''):>18}" for n in lengths))


def commit_of_this() -> str:
    if commit := os.environ.get("LADDER_COMMIT"):
        return commit
    try:
        run = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    except OSError:  # a machine without git
        return "unknown"
    return run.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stages", nargs="*", help="stages, named 3, 03, kvpipe or 03_kvpipe (default: all)")
    parser.add_argument("--emulator", action="store_true", help="count on the emulator: no GPU needed")
    parser.add_argument("--n", help="sequence lengths, with commas (default: 512 to 16384; on the emulator 256 to 4096)")
    parser.add_argument("--causal", action="store_true", help="causal attention; stages without it are left out")
    parser.add_argument("--csv", type=Path, help="also write the rows there, e.g. docs/results/h200_traffic.csv")
    parser.add_argument("--check", type=Path, metavar="CSV", help="write nothing; exit 1 if the file has other values")
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="the build directory (default: build)")
    parser.add_argument("--commit", default=commit_of_this(), help="for the commit column (default: the one checked out)")
    arguments = parser.parse_args()
    ladder = arguments.build / "ladder"
    more = ["--causal"] if arguments.causal else []

    def work() -> None:
        if arguments.n and not all(word.isdigit() for word in arguments.n.split(",")):
            raise Failure(f"--n takes whole numbers with commas between them, not '{arguments.n}'", 2)
        lengths = [int(word) for word in arguments.n.split(",")] if arguments.n else None
        if not ladder.is_file():
            raise Failure(f"{ladder} is not built; run: ./ladder build ladder", 2)
        os.environ["LADDER"] = str(ladder)  # which is asked for the stages too
        stages = [rung.name for rung in rungs.chosen(arguments.stages)]
        if arguments.emulator:
            rows = emulated(ladder, stages, lengths or EMULATED_LENGTHS, more)
        else:
            ncu.require("ncu", "\n  Here:  ladder explain STAGE      bytes and conflicts, counted by the emulator")
            rows = measured(ladder, stages, lengths or LENGTHS, more)
        if arguments.check:
            check(arguments.check, rows)
            return
        print_tables(rows)
        if arguments.csv:
            write(arguments.csv, rows, arguments.commit)

    return ncu.exit_code(work)


if __name__ == "__main__":
    sys.exit(main())
