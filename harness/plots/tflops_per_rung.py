#!/usr/bin/env python3
"""The climb: TFLOPS of every rung at one shape, with the peers and the card's ceilings as lines. Branches are hollow."""
from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import figure
import results
from results import rungs

NAME = "tflops-per-rung"
HATCHES = ("", "////", "....", "xxxx", "----")  # of the parts, so that they can be told apart in grey

# Ceilings that are drawn, and what runs in their loop. The others count no operations, or agree with one of these.
LABELS = {"mma_sync": "mma.sync alone", "cublas": "cuBLAS product", "wgmma": "wgmma alone"}


def collect(csv: Path, rows: list[results.Row], arguments: Namespace) -> figure.Points:
    selection = results.selection_from(arguments)
    measured, peers, ceilings = results.select(csv, rows, selection)
    ceilings = [row for row in ceilings if row.stage in LABELS]
    known = rungs.by_name()
    starts = {rung.previous for rung in known.values()}
    last = rungs.known()[-1].name
    return {
        "title": f"{measured[0].gpu}, {selection}",
        "rungs": [[row.stage, known[row.stage].part, row.stage in starts or row.stage == last, round(row.tflops, 1)]
                  for row in measured],
        "parts": [[part.name, part.title] for part in rungs.parts()],
        "lines": [[row.stage, row.kind, round(row.tflops, 1)] for row in peers + ceilings],
    }


def render(axes, points: figure.Points) -> None:
    parts = [name for name, _ in points["parts"]]
    for i, (rung, part, leads_on, tflops) in enumerate(points["rungs"]):
        style = parts.index(part)
        colour = figure.COLORS[style % len(figure.COLORS)]
        axes.barh(i, tflops, height=0.72, color=colour + "66" if leads_on else "white", edgecolor=figure.INK if leads_on else colour,
                  hatch=HATCHES[style % len(HATCHES)] if leads_on else "", linewidth=0.8)
        axes.annotate(f"{tflops:.1f}" if tflops < 100 else f"{tflops:.0f}", (tflops, i), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=9, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    end = len(points["rungs"]) - 0.4
    highest = max([rung[-1] for rung in points["rungs"]] + [tflops for *_, tflops in points["lines"]])
    axes.set_xlim(0, highest * 1.08)
    label_at = -1.0
    for name, kind, tflops in sorted(points["lines"], key=lambda line: line[2]):
        axes.axvline(tflops, color=figure.INK, linewidth=1.3, linestyle="--" if kind == "peer" else ":", zorder=2.5)
        label_at = max(tflops, label_at + highest * 0.035)
        axes.annotate(f"{LABELS.get(name, name)} {tflops:.0f}", (tflops, -0.6), xytext=(label_at, -0.9), rotation=60, ha="left", va="bottom",
                      fontsize=8, annotation_clip=False)
    axes.set_ylim(end, -0.6)
    axes.set_yticks(range(len(points["rungs"])), [rung[0] for rung in points["rungs"]], fontsize=9)
    axes.grid(False, axis="y")
    axes.set_xlabel(figure.TFLOPS_LABEL + "; dashed: others, dotted: what the card does when it only multiplies\n" + points["title"], fontsize=8)
    from matplotlib.patches import Patch

    present = {rung[1] for rung in points["rungs"]}
    handles = [Patch(facecolor=figure.COLORS[i % len(figure.COLORS)] + "66", edgecolor=figure.INK, hatch=HATCHES[i % len(HATCHES)],
                     label=title or "the ladder") for i, (name, title) in enumerate(points["parts"]) if name in present]
    axes.legend(handles=handles, loc="upper right", fontsize=8, frameon=True, bbox_to_anchor=(1.0, 0.62))


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render, height=8.5))
