#!/usr/bin/env python3
"""TFLOPS of every rung at one shape, with the peers and the card's ceilings as lines."""
from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

import figure
import results

NAME = "tflops-per-rung"
HATCHES = ("", "//", "\\\\", "..", "xx", "--", "||", "++", "oo", "**")

# Ceilings: what runs in the loop, and who can reach it. Peers may use wgmma, so only cuBLAS bounds them.
LABELS = {"mma_sync": "mma.sync alone", "cublas": "cuBLAS product", "wgmma": "wgmma alone"}


def collect(csv: Path, rows: list[results.Row], arguments: Namespace) -> figure.Points:
    selection = results.selection_from(arguments)
    measured, peers, ceilings = results.select(csv, rows, selection)
    return {
        "title": f"{measured[0].gpu}, {selection}",
        "rungs": [[row.stage, round(row.tflops, 1)] for row in measured],
        "lines": [[row.stage, row.kind, round(row.tflops, 1)] for row in peers + ceilings],
    }


def render(axes, points: figure.Points) -> None:
    for i, (rung, tflops) in enumerate(points["rungs"]):
        axes.bar(i, tflops, width=0.66, color=figure.COLORS[i % len(figure.COLORS)] + "55", edgecolor=figure.INK,
                 hatch=HATCHES[i % len(HATCHES)], linewidth=0.8)
        axes.annotate(f"{tflops:.1f}" if tflops < 100 else f"{tflops:.0f}", (i, tflops), xytext=(0, 2),
                      textcoords="offset points", ha="center", va="bottom", fontsize=7,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8})
    highest = max([tflops for _, tflops in points["rungs"]] + [tflops for *_, tflops in points["lines"]])
    axes.set_ylim(0, highest * 1.08)
    end = len(points["rungs"]) - 0.5
    gap = highest * 0.045  # room for one line of text
    label_at = -gap
    for name, kind, tflops in sorted(points["lines"], key=lambda line: line[2]):
        axes.axhline(tflops, color=figure.INK, linewidth=1.4, linestyle="--" if kind == "peer" else ":", zorder=2.5)
        label_at = max(tflops, label_at + gap)
        label = LABELS.get(name, name)
        axes.annotate(f"{label} {tflops:.0f}", (end, tflops), xytext=(end + 0.1, label_at), va="center",
                      annotation_clip=False)
    axes.set_xlim(-0.6, end)
    axes.set_xticks(range(len(points["rungs"])), [rung for rung, _ in points["rungs"]], rotation=40, ha="right", fontsize=8)
    axes.grid(False, axis="x")
    axes.set_ylabel(figure.TFLOPS_LABEL)
    axes.set_title(points["title"] + "\ndashed: other implementations; dotted: what this card does when it only multiplies", fontsize=9)


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render))
