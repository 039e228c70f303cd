"""Predicted, and what came: for each rung the range that was predicted before it was timed, and the value that came, both over the middle of that
range. Sorted, so that one sees how often, how far, and in which direction."""
from __future__ import annotations

import math
from pathlib import Path

from tools import results
from tools.evidence import first_rows
from tools.plots import figure

NAME = "predictions"
HIT, MISSED = figure.COLORS[0], figure.COLORS[1]


def predicted() -> list[tuple[str, str, float, float, float]]:
    """Rung, verdict, the range as it counts, and what came first: of the half that decides, of each prediction that can be hit or missed."""
    found = []
    halves = results.table(first_rows.HALVES)
    for name, row in first_rows.listed().items():
        half = first_rows.decisive([each for each in halves if each["stage"] == name])
        if row["verdict"] in ("hit", "missed") and half:
            low, high, came = float(half["low"]), float(half["high"]), float(half["came"])
            slack = first_rows.SLACK if low == high else 0
            low, high = low - slack, high + slack
            found.append((name, row["verdict"], *((1 / high, 1 / low, 1 / came) if first_rows.is_time(half) else (low, high, came))))
    return found


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    del csv, rows
    points = []
    for stage, verdict, low, high, came in predicted():
        middle = math.sqrt(low * high)
        points.append([stage, verdict, round(low / middle, 3), round(high / middle, 3), round(came / middle, 3)])
    return {"rows": sorted(points, key=lambda point: point[4])}


def heights(points: figure.Points) -> list[float]:
    return [0.6 + min(0.17 * len(points["rows"]), 7.8)]  # a higher one would be shrunk on a phone, and its letters with it


def render(axes: list, points: figure.Points) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    axis, rows = axes[0], points["rows"]
    for at, (_, verdict, low, high, came) in enumerate(rows):
        axis.barh(at, high - low, left=low, height=0.72, color=figure.GRID)
        axis.plot(came, at, marker="o" if verdict == "hit" else "X", markersize=5, color=HIT if verdict == "hit" else MISSED, linestyle="none")
    axis.axvline(1, color=figure.SOFT, linewidth=0.8, zorder=0)
    axis.set_xscale("log")
    ticks = (0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5)
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xticks([], minor=True)
    axis.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=10)
    axis.set_ylim(-0.8, len(rows) - 0.2)
    axis.grid(axis="y", visible=False)
    axis.set_xlabel("what came, over the middle of what was predicted")
    handles = [Patch(facecolor=figure.GRID, label="predicted"), Line2D([], [], color=HIT, marker="o", linestyle="none", label="hit"),
               Line2D([], [], color=MISSED, marker="X", linestyle="none", label="missed")]
    axis.legend(handles=handles, frameon=False, loc="center right")
