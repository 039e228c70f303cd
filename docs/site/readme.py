#!/usr/bin/env python3
"""Writes the README's ladder table: ideas from the rungs, counts from the emulator, TFLOPS from docs/results.

With --check nothing is written: exits 1 when the table, or a figure in docs/figures, is older than its data.
"""
from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
from pathlib import Path

from paths import ROOT
import bytes_over_n
import figure
import memory_over_n
import results
import roofline
import tflops_over_n
import tflops_per_rung
import time_over_n
import traffic
import waterfall
from harness import rungs

BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"
TOP = "The ladder"  # its top level, where it goes on after a part that stands between two of its rungs
FIGURES = (
    (tflops_per_rung, results.add_selection_arguments),
    (waterfall, results.add_selection_arguments),
    (tflops_over_n, tflops_over_n.add_arguments),
    (time_over_n, time_over_n.add_arguments),
)
TRAFFIC_FIGURES = ((bytes_over_n, bytes_over_n.add_arguments), (memory_over_n, bytes_over_n.add_arguments),
                   (roofline, bytes_over_n.add_arguments))


class Stale(Exception):
    """What is older than its data, and how to renew it."""


def idea(rung: rungs.Rung) -> str:
    """As a cell of a table."""
    return rung.idea.replace("|", "\\|")


def emulated() -> dict[str, dict]:
    """What the emulator counts for each rung's default configuration."""
    command = [str(rungs.program()), "check", "--on", "cpu", "--json", "-"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise results.ResultsError(f"{' '.join(command)} exited with {run.returncode}:\n{run.stderr.strip()}")
    counts: dict[str, dict] = {}
    for entry in json.loads(run.stdout):
        if entry["backend"] == "emulator":
            counts.setdefault(entry["stage"], entry)
    missing = [rung.name for rung in rungs.known() if rung.name not in counts]
    if missing:
        raise results.ResultsError(f"{' '.join(command)} says nothing of {', '.join(missing)}")
    return counts


def table(counts: dict[str, dict], rows: list[results.Row], peers: list[results.Row]) -> list[str]:
    measured = {row.stage: row for row in rows}
    head = ["rung", "idea", "global memory read", "`ldmatrix`", "its bank conflicts", "shared-memory wavefronts"]
    if measured:
        head += ["TFLOPS", "against the rung before", "of FA2 in PyTorch"]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---:|" * (len(head) - 2)]
    part = None
    for rung in rungs.known():
        if rung.part != part:
            part = rung.part
            lines.append(f"| **{f'[{rung.part_title or part}]({part}/)' if part else TOP}** |" + " |" * (len(head) - 1))
        counters = counts[rung.name]["counters"]
        ways = counters["ldmatrix_conflict_ways"]
        cells = [f"[{rung.name}]({rung.directory}/)", idea(rung), f"{counters['gmem_bytes_read'] / 2**20:.1f} MiB",
                 f"{counters['ldmatrix']:,}", "none" if ways <= 1 else f"{ways:.2g}-way", f"{counters['smem_wavefronts']:,}"]
        if measured:
            cells += timing(measured.get(rung.name))
        lines.append("| " + " | ".join(cells) + " |")
    for peer in sorted(peers, key=lambda row: row.stage):
        cells = [peer.stage, "another implementation", "", "", "", ""]
        lines.append("| " + " | ".join(cells + timing(peer)) + " |")
    return lines


def timing(row: results.Row | None) -> list[str]:
    if row is None:
        return ["", "", ""]
    gain = ""
    if None not in (row.vs_previous, row.vs_previous_lo, row.vs_previous_hi):
        percent = [(ratio - 1) * 100 for ratio in (row.vs_previous, row.vs_previous_lo, row.vs_previous_hi)]
        digits = 0 if percent[0] >= 100 else 1
        gain = f"{percent[0]:+.{digits}f} % [{percent[1]:+.{digits}f}, {percent[2]:+.{digits}f}]"
    fa2 = f"{row.vs_fa2 * 100:.1f} %" if row.vs_fa2 is not None else ""
    return [f"{row.tflops:.1f}", gain, fa2]


def section(counts: dict[str, dict], csv: Path) -> str:
    """What stands between the markers."""
    shape = next(iter(counts.values()))
    emulator_note = (f"Bytes, instructions, conflicts and wavefronts are counted by the emulator at batch {shape['batch']}, "
                     f"heads {shape['heads']}, N = {shape['n']}, d = {shape['d']}.")
    if not csv.is_file():
        return "\n".join(table(counts, [], []) + ["", emulator_note])
    selection = results.Selection()
    timed, peers, _ = results.select(csv, results.read(csv), selection)
    first = timed[0]
    name = csv.relative_to(ROOT)
    picture = figure.path_of(csv, tflops_per_rung.NAME).relative_to(ROOT)
    alone = [row.stage for row in timed if row.values["rounds"] < max(other.values["rounds"] for other in timed)]
    notes = [
        "", emulator_note,
        f"TFLOPS were measured on an {first.gpu} on {first.date} at {selection}; gains are medians of "
        "paired rounds (not quotients of the TFLOPS beside them) with their 95 % interval.",
        *([f"Timed alone, for a launch takes more than a second: {', '.join(alone)}."] if alone else []),
        f"All of it, with clocks and drivers: [{name}]({name}).",
        "", f"![TFLOPS of every rung on an {first.gpu}, with other implementations and the card's ceilings]({picture})",
    ]
    return "\n".join(table(counts, timed, peers) + notes)


def check_figures(csv: Path, read=results.read, figures=FIGURES) -> None:
    """Figures whose data are not there yet need not be there either."""
    for module, add_arguments in figures:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        svg = figure.path_of(csv, module.NAME)
        try:
            points = module.collect(csv, read(csv), parser.parse_args([]))
        except results.NotMeasured:
            continue
        if not figure.is_current(svg, points):
            raise Stale(f"{svg} is missing or older than {csv}; run: make plots")


def replaced(readme: Path, text: str, generated: str) -> str:
    pattern = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise results.ResultsError(f"{readme}: expected one line {BEGIN} and one line {END} behind it")
    return pattern.sub(lambda _: f"{BEGIN}\n{generated}\n{END}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=figure.RESULTS / "h200.csv",
                        help="measured results (default: docs/results/h200.csv)")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md", help="the file to renew")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something is stale")
    arguments = parser.parse_args()
    arguments.csv = arguments.csv.resolve()
    try:
        old = arguments.readme.read_text(encoding="utf-8")
        new = replaced(arguments.readme, old, section(emulated(), arguments.csv))
        if not arguments.check:
            arguments.readme.write_text(new, encoding="utf-8")
            return 0
        if old != new:
            difference = difflib.unified_diff(old.splitlines(), new.splitlines(), "committed", "generated", lineterm="")
            raise Stale("\n".join([*difference, f"{arguments.readme}: the table is stale; run: make plots"]))
        if arguments.csv.is_file():
            check_figures(arguments.csv)
            check_figures(arguments.csv.with_name(arguments.csv.stem + "_traffic.csv"), traffic.read, TRAFFIC_FIGURES)
    except Stale as stale:
        print(stale, file=sys.stderr)
        return 1
    except (results.ResultsError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
