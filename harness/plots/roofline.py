#!/usr/bin/env python3
"""Roofline: TFLOPS of every rung over the operations that it does for each byte, from DRAM and from L2.

Bytes are those of GPU_traffic.csv at the N of the README's table, TFLOPS those of GPU.csv beside it, at the README's shape. The roofs are measured
ceilings; the slopes are the most that DRAM and L2 can deliver at the clocks of the run, by ncu's peak_sustained.
"""
from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import figure
import results
import traffic
from bytes_over_n import LEVELS, add_arguments

NAME, CSV, PANELS = "roofline", traffic.FILE, 2
N, D = results.HEADLINE["n"], results.HEADLINE["d"]
FLOPS = 4 * N**2 * D  # of one head
PEAKS = (("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"),
         ("lts__t_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"))


def peak(csv: Path, rows: list[traffic.Row], names: tuple[str, str]) -> float:
    """Bytes per second: bytes per cycle times cycles per second, the largest of all launches."""
    launches: dict[tuple, dict[str, float]] = {}
    for row in rows:
        if row.metric in names and row.source == "measured":
            launches.setdefault((row.stage, row.batch, row.heads, row.n, row.causal), {})[row.metric] = row.value
    found = [values[names[0]] * values[names[1]] for values in launches.values() if len(values) == 2]
    if not found:
        raise results.NotMeasured(f"{csv}: no {' and '.join(names)} yet. They are measured on a GPU:  {traffic.HOW}")
    return max(found)


def collect(csv: Path, rows: list[traffic.Row], arguments: Namespace) -> figure.Points:
    timed = csv.with_name(csv.name.replace("_traffic", ""))
    selection = results.Selection(n=N)
    measured, _, ceilings = results.select(timed, results.read(timed), selection)
    tflops = {row.stage: row.tflops for row in measured}
    panels = []
    for (level, metrics), names in zip(LEVELS, PEAKS):
        carried = {stage: points[N] for stage, points in traffic.measured_over_n(csv, rows, metrics).items() if N in points}
        rungs_here = [[stage, round(FLOPS / carried[stage], 2), round(tflops[stage], 1)] for stage in carried if stage in tflops]
        if not rungs_here:
            raise results.NotMeasured(f"{csv}: no stage at N = {N} that {timed.name} has timed. Measured by:  {traffic.HOW}")
        panels.append({"level": level, "x": f"operations per byte, {' + '.join(metrics)}", "rungs": rungs_here,
                       "tb_per_s": round(peak(csv, rows, names) / 1e12, 2)})
    return {"title": f"{traffic.card(rows)}; TFLOPS at {selection}", "panels": panels,
            "ceilings": [[row.stage, round(row.tflops, 1)] for row in ceilings]}


def render(axes: list, points: figure.Points) -> None:
    for axis, panel in zip(axes, points["panels"]):
        intensities = [x for _, x, _ in panel["rungs"]]
        left, right = min(intensities) / 4, max(max(intensities), 2000) * 4
        for above, (name, tflops) in enumerate(sorted(points["ceilings"], key=lambda ceiling: ceiling[1])):
            knee = tflops / panel["tb_per_s"]
            axis.plot([knee, max(right, knee)], [tflops, tflops], color=figure.INK, linewidth=1.4)
            axis.annotate(f"{name} {tflops:.0f}", (right, tflops), ha="right", va="bottom" if above else "top", fontsize=8)
        highest = max(tflops for _, tflops in points["ceilings"])
        axis.plot([left, highest / panel["tb_per_s"]], [left * panel["tb_per_s"], highest], color=figure.INK, linewidth=1.4)
        middle = (left * highest / panel["tb_per_s"]) ** 0.5  # of the slope, on a logarithmic scale; no rung can stand above it
        axis.annotate(f"{panel['tb_per_s']:.2f} TB/s", (middle, middle * panel["tb_per_s"]), xytext=(-8, 4),
                      textcoords="offset points", ha="right", va="bottom", fontsize=8)
        for i, (stage, x, y) in enumerate(panel["rungs"]):
            axis.plot(x, y, linestyle="none", **figure.mark(i), markersize=7, label=stage)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlim(left, right)
        axis.set_xlabel(panel["x"], fontsize=8)
        axis.set_title(panel["level"], fontsize=9)
    axes[0].set_ylabel(figure.TFLOPS_LABEL)
    axes[1].legend(fontsize=6.5, ncols=2, labelspacing=0.3, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes[0].figure.suptitle(points["title"], fontsize=9)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    return [(f"{panel['level']}: at most {panel['tb_per_s']:.2f} TB/s", ["rung", "operations per byte", "TFLOPS"],
             [[stage, f"{x:g}", f"{y:g}"] for stage, x, y in panel["rungs"]]) for panel in points["panels"]]


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render, add_arguments, CSV, traffic.read, PANELS))
