"""The climb: TFLOPS of every rung at one shape, and below them of other implementations and of the card's ceilings. The
slow rungs have a panel of their own, with a scale of their own. Branches are hollow."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NAME = "tflops-per-rung"
SLOW = 0.15  # of the fastest: below it a bar is a sliver

# Ceilings that are drawn, and what runs in their loop. The others count no operations, or agree with one of these.
LABELS = {"mma_sync": "mma.sync alone", "cublas": "cuBLAS product", "wgmma": "wgmma alone"}


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    selection = results.Selection()
    measured, peers, ceilings = results.select(csv, rows, selection)
    ceilings = [row for row in ceilings if row.stage in LABELS]
    known = rungs.by_name()
    on_the_way = {rung.previous for rung in known.values()} | set({known[row.stage].part: row.stage for row in measured}.values())  # and each part's end
    runs = figure.Runs(measured + peers + ceilings)
    return {
        "title": f"{measured[0].gpu}, {selection}", "runs": runs.said,
        "rungs": [[row.stage, known[row.stage].part, row.stage in on_the_way, runs.of(row), round(row.tflops, 3)]
                  for row in measured],
        "lines": [[row.stage, row.kind, runs.of(row), round(row.tflops, 3)] for row in peers + ceilings],
    }


def panels(points: figure.Points) -> list[list[tuple]]:
    """(name, part, hollow, run, TFLOPS) of each bar: those of the slow rungs, if there are some, and those of the others."""
    highest = max(rung[-1] for rung in points["rungs"])
    bars = [(rung, part, not leads_on, run, tflops) for rung, part, leads_on, run, tflops in points["rungs"]]
    others = [(LABELS.get(name, name), kind, False, run, tflops) for name, kind, run, tflops in sorted(points["lines"], key=lambda line: line[-1])]
    slow = [bar for bar in bars if bar[-1] < SLOW * highest]
    return [group for group in (slow, [bar for bar in bars if bar not in slow] + others) if group]


def heights(points: figure.Points) -> list[float]:
    groups = panels(points)
    return [0.21 * len(group) + (1.35 if group is groups[-1] else 1.1) for group in groups]


def render(axes: list, points: figure.Points) -> None:
    colours = figure.part_colours()
    for axis, bars in zip(axes, panels(points)):
        for i, (_, part, hollow, run, tflops) in enumerate(bars):
            colour = colours.get(part, figure.SOFT)
            fill = figure.PAPER if hollow else colour
            axis.barh(i, tflops, height=0.7, color=fill, edgecolor=colour, linewidth=1.2, hatch="" if part in colours else "////")
            if part not in colours:
                axis.patches[-1].set_facecolor(figure.PAPER)
            axis.annotate((f"{tflops:.1f}" if tflops < 100 else f"{tflops:.0f}") + f" {run}".rstrip(), (tflops, i), xytext=(4, 0), textcoords="offset points", va="center")
        axis.set_xlim(0, max(bar[-1] for bar in bars) * 1.12)
        axis.set_ylim(len(bars) - 0.4, -0.6)
        axis.set_yticks(range(len(bars)), [bar[0] for bar in bars])
        axis.grid(False, axis="y")
    for axis in axes[:-1]:
        axis.set_xlabel("TFLOPS, on a scale of their own")
    axes[-1].set_xlabel("TFLOPS")
    axes[0].figure.suptitle(figure.lines(points["title"], "hatched: others, and what the card does when it only multiplies", points["runs"]), fontsize=figure.TYPE)
    figure.part_legend(axes[-1], {rung[1] for rung in points["rungs"]}, 0.45)
