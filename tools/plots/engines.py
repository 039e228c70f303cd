"""Four engines: how much of the time the tensor cores, the exponential units, the pipe of shared memory and the issue of instructions are busy,
for every rung. The fullest one is what limits it, or nothing is full and somebody waits."""
from __future__ import annotations

import csv as files
from pathlib import Path

from tools import results
from tools.plots import figure

NAME = "engines"
COUNTED = {  # by ncu, of the default kernel, which stands first in the file
    "tensor\ncores": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "shared\nmemory": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed",
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
}
ENGINES = ("tensor\ncores", "expo-\nnentials", "shared\nmemory", "issue")
PER_SCORE, PER_CLOCK = 4 * 128, 16  # operations of a score at d = 128; exponentials per clock and SM


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    measured, _, _ = results.select(csv, rows, results.Selection())
    path, counters = csv.with_name(f"{csv.stem}_counters.csv"), {}
    if not path.is_file():
        raise results.NotMeasured(f"{path}: nothing was counted yet. Counted by: tools/evidence/counters.py")
    with path.open(encoding="utf-8", newline="") as file:
        for row in files.DictReader(file):
            counters.setdefault(row["stage"], {}).setdefault(row["metric"], float(row["value"]))
    found, timed = [], []
    for row in measured:
        counted = counters.get(row.stage, {})
        if row.flop_per_clk_sm is None or any(metric not in counted for metric in COUNTED.values()):
            continue
        busy = {name: counted[metric] for name, metric in COUNTED.items()}
        busy["expo-\nnentials"] = 100 * row.flop_per_clk_sm / PER_SCORE / PER_CLOCK  # one for each score
        found.append([row.stage, [round(busy[name], 1) for name in ENGINES]])
        timed.append(row)
    if not found:
        raise results.NotMeasured(f"{path}: no rung has all of its counters")
    runs = figure.Runs(timed)  # of exponentials; the others were counted
    return {"title": measured[0].gpu, "runs": runs.said, "rows": [[*entry, runs.of(row)] for entry, row in zip(found, timed)]}


def heights(points: figure.Points) -> list[float]:
    return [0.27 * len(points["rows"]) + 0.9]


def render(axes: list, points: figure.Points) -> None:
    axis, rows = axes[0], points["rows"]
    for i, (_, busy, _) in enumerate(rows):
        for column, percent in enumerate(busy):
            axis.barh(i, 0.9, left=column, height=0.9, color=figure.GRID, alpha=0.35)
            axis.barh(i, 0.9 * percent / 100, left=column, height=0.9, color=figure.COLORS[1] if percent == max(busy) else figure.COLORS[0])
            axis.annotate(f"{percent:.0f}", (column + 0.86, i), ha="right", va="center", fontsize=figure.TYPE)
    axis.set_xlim(-0.05, len(ENGINES))
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_yticks(range(len(rows)), [f"{name} {run}".rstrip() for name, _, run in rows], fontsize=figure.TYPE)
    axis.set_xticks([column + 0.45 for column in range(len(ENGINES))], ENGINES)
    axis.xaxis.tick_top()
    axis.grid(False)
    axis.figure.suptitle(figure.lines(f"{points['title']}: percent of the time; orange is the fullest", points["runs"]), fontsize=figure.TYPE)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    return [("Percent of the time that an engine is busy" + (f": {points['runs']}" if points["runs"] else ""), ["", *(name.replace("-\n", "").replace("\n", " ") for name in ENGINES)],
             [[f"{name} {run}".rstrip(), *(f"{percent:.1f}" for percent in busy)] for name, busy, run in points["rows"]])]
