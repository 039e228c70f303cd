"""The waterfall: what each rung gained over the one that it starts from, with its 95 % interval."""
from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from tools import results
from tools.plots import figure

NAME = "waterfall"
MARKER = {"faster": "^", "slower": "v", "same": "o", "": "o"}


def collect(csv: Path, rows: list[results.Row], arguments: Namespace) -> figure.Points:
    selection = results.selection_from(arguments)
    selected, _, _ = results.select(csv, rows, selection)
    compared = [row for row in selected if None not in (row.vs_previous, row.vs_previous_lo, row.vs_previous_hi)]
    if not compared:
        raise results.ResultsError(f"{csv}: no rung has vs_previous and its interval at {selection}")
    percent = [[round((ratio - 1) * 100, 6) for ratio in (row.vs_previous_lo, row.vs_previous, row.vs_previous_hi)]
               for row in compared]
    return {
        "title": f"{compared[0].gpu}, {selection}",
        "rungs": [[row.stage, row.verdict, *gain] for row, gain in zip(compared, percent)],
    }


def heights(points: figure.Points) -> list[float]:
    return [0.22 * len(points["rungs"]) + 1.2]


def render(axes: list, points: figure.Points) -> None:
    axes = axes[0]
    for i, (_, verdict, low, gain, high) in enumerate(points["rungs"]):
        fill = figure.INK if verdict in ("faster", "slower") else figure.PAPER
        axes.errorbar(gain, i, xerr=[[gain - low], [high - gain]], fmt=MARKER[verdict], color=figure.INK,
                      markerfacecolor=fill, markersize=6, capsize=3)
        # Outside the axes, where the layout keeps room for it however long it is.
        digits = 0 if gain >= 100 else 1
        axes.annotate(f"{gain:+.{digits}f} %  [{low:+.{digits}f}, {high:+.{digits}f}]" + ("  same" if verdict == "same" else ""), (1, i),
                      xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", va="center", annotation_clip=False)
    axes.axvline(0, color=figure.INK, linewidth=1, zorder=1)
    # Gains run from a fraction of a percent to several hundred: linear within 1 %, logarithmic beyond.
    axes.set_xscale("symlog", linthresh=1, linscale=0.6)
    lowest, highest = min(row[2] for row in points["rungs"]), max(row[4] for row in points["rungs"])
    axes.set_xlim(min(lowest * 2, -0.5), max(highest, 10) * 2)
    ticks = [tick for tick in (-100, -10, -1, 0, 1, 10, 100, 1000, 10000) if lowest * 2 <= tick <= highest * 2]
    axes.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(points["rungs"])), [row[0] for row in points["rungs"]])
    axes.set_ylim(len(points["rungs"]) - 0.5, -0.5)
    axes.grid(False, axis="y")
    axes.set_xlabel("% against the rung that it starts from,\nlogarithmic beyond 1 %")
    axes.figure.suptitle(points["title"].replace(", d =", ",\nd =") + "\nmedian of paired rounds, 95 % interval; hollow: the same", fontsize=figure.TYPE)


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render, heights))
