"""Roofline: TFLOPS of every rung over the operations that it does for each byte, from DRAM and from L2.

Bytes are those of GPU_traffic.csv at the N of the README's table, TFLOPS those of GPU.csv beside it, at the README's
shape. The roofs are measured ceilings. The solid slopes are ncu's peak_sustained, what the wires of DRAM and L2 could
carry at the clocks of the run. That is not reachable: what a kernel that does nothing but read was seen to get is the
dashed slope, where it was measured.
"""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure, traffic
from tools.plots.bytes_over_n import LEVELS

NAME, CSV, read = "roofline", traffic.FILE, results.traffic
N, D = results.HEADLINE["n"], results.HEADLINE["d"]
FLOPS = 4 * N**2 * D  # of one head
PEAKS = (("dram__bytes.sum.peak_sustained", "dram__cycles_elapsed.avg.per_second"),
         ("lts__t_bytes.sum.peak_sustained", "lts__cycles_elapsed.avg.per_second"))

# The ceilings that were measured by reading from a level and doing nothing else, in 10^12 bytes per second.
REACHED = ("dram_read", "l2_read")
ROOFS = ("mma_sync", "wgmma")


def peak(csv: Path, rows: list[results.Row], names: tuple[str, str]) -> float:
    """Bytes per second: bytes per cycle times cycles per second, the largest of all launches."""
    launches: dict[tuple, dict[str, float]] = {}
    for row in rows:
        if row.metric in names and row.source == "measured":
            launches.setdefault((row.stage, row.batch, row.heads, row.n, row.causal), {})[row.metric] = row.value
    found = [values[names[0]] * values[names[1]] for values in launches.values() if len(values) == 2]
    if not found:
        raise results.NotMeasured(f"{csv}: no {' and '.join(names)} yet. They are measured on a GPU:  {traffic.HOW}")
    return max(found)


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    timed = csv.with_name(csv.name.replace("_traffic", ""))
    selection = results.Selection(n=N)
    measured, _, ceilings = results.select(timed, results.read(timed), selection)
    tflops = {row.stage: row.tflops for row in measured}
    panels = []
    for (level, metrics), names, loop in zip(LEVELS, PEAKS, REACHED):
        carried = {stage: points[N] for stage, points in traffic.measured_over_n(csv, rows, metrics).items() if N in points}
        rungs_here = [[stage, round(FLOPS / carried[stage], 2), round(tflops[stage], 1)] for stage in carried if stage in tflops]
        if not rungs_here:
            raise results.NotMeasured(f"{csv}: no stage at N = {N} that {timed.name} has timed. Measured by:  {traffic.HOW}")
        panels.append({"level": level, "x": f"operations per byte, {' + '.join(metrics)}", "rungs": rungs_here,
                       "tb_per_s": round(peak(csv, rows, names) / 1e12, 2), "reached": next((round(row.tflops, 2) for row in ceilings if row.stage == loop), None)})
    roofs = [row for row in ceilings if row.stage in ROOFS]
    runs = figure.Runs([row for row in measured if any(row.stage == rung[0] for panel in panels for rung in panel["rungs"])] + roofs)
    return {"title": f"{traffic.card(rows)}; TFLOPS at {selection}", "panels": panels, "runs": runs.said,
            "of": {row.stage: runs.of(row) for row in measured if (row.date, row.commit) in runs.letters},
            "ceilings": [[row.stage, runs.of(row), round(row.tflops, 1)] for row in roofs],
            "parts": {rung.name: rung.part for rung in rungs.known() if rung.name in tflops}}


def heights(points: figure.Points) -> list[float]:
    return [4.0] * (len(points["panels"]) - 1) + [5.0]


def render(axes: list, points: figure.Points) -> None:
    colours = figure.part_colours()
    for axis, panel in zip(axes, points["panels"]):
        intensities = [x for _, x, _ in panel["rungs"]]
        left, right = min(intensities) / 3, max(max(intensities), 2000) * 3
        shown = sorted((tflops, name, run) for name, run, tflops in points["ceilings"])
        for above, (tflops, name, run) in enumerate(shown):
            axis.plot([tflops / panel["tb_per_s"], right], [tflops, tflops], color=figure.INK, linewidth=1.4)
            # Where no rung stands below the roof.
            free = right if above or min(intensities) * 30 > right else tflops / panel["tb_per_s"] * 1.3
            axis.annotate(f"{name} {tflops:.0f} {run}".rstrip(), (free, tflops), xytext=(0, 2 if above else -2), textcoords="offset points",
                          ha="right" if free == right else "left", va="bottom" if above else "top")
        highest = shown[-1][0]

        def slope(rate: float, words: str, line: str, side: int) -> None:
            axis.plot([left, highest / rate], [left * rate, highest], color=figure.INK, linewidth=1.4, linestyle=line)
            x = left * (highest / rate / left) ** (0.62 if side > 0 else 0.45)
            axis.annotate(words, (x, x * rate), xytext=(-6 * side, 2 * side), textcoords="offset points", ha="right" if side > 0 else "left",
                          va="bottom" if side > 0 else "top")

        slope(panel["tb_per_s"], f"{panel['tb_per_s']:.2f} TB/s", "-", 1)
        if panel["reached"]:
            slope(panel["reached"], f"{panel['reached']:.2f} TB/s reached", "--", -1)
        axis.set_xscale("log")
        axis.set_yscale("log")
        figure.powers_of_ten(axis.xaxis)
        figure.powers_of_ten(axis.yaxis)
        axis.set_xlim(left, right)
        axis.set_ylim(min(y for *_, y in panel["rungs"]) / 2, highest * 2)
        named: list[tuple[float, float]] = []
        for stage, x, y in panel["rungs"]:
            axis.plot(x, y, linestyle="none", marker="o", markersize=6, color=colours[points["parts"][stage]], markeredgecolor=figure.PAPER, markeredgewidth=0.6)
            at = axis.transData.transform((x, y))
            # The table has the others.
            if all(abs(at[0] - other[0]) > 24 or abs(at[1] - other[1]) > 14 for other in named):
                named.append(tuple(at))
                axis.annotate(f"{stage.split('_')[0]} {points['of'][stage]}".rstrip(), (x, y), xytext=(6, -3), textcoords="offset points")
        axis.set_xlabel(panel["x"].replace(", ", ",\n").replace(" + ", " +\n"))
        axis.set_ylabel(figure.TFLOPS_LABEL)
        axis.set_title(panel["level"])
    drawn = {stage for panel in points["panels"] for stage, *_ in panel["rungs"]}
    figure.part_legend(axes[-1], {part for stage, part in points["parts"].items() if stage in drawn}, 0.65)
    axes[0].figure.suptitle(figure.lines(points["title"].replace("; ", ";\n"), points["runs"]), fontsize=figure.TYPE)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    return [(f"{panel['level']}: {panel['tb_per_s']:.2f} TB/s by ncu's peak_sustained"
             + (f", {panel['reached']:.2f} reached" if panel["reached"] else ""), ["rung", "operations per byte", "TFLOPS"],
             [[stage, f"{x:g}", f"{y:g} {points['of'][stage]}".rstrip()] for stage, x, y in panel["rungs"]]) for panel in points["panels"]]
