#!/usr/bin/env python3
"""Milliseconds per head over N, for every rung and peer of the sweep (batch x N constant, so that the GPU is always full)."""
from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import figure
import over_n
import results
from results import rungs

table = over_n.table
NAME, CSV, PANELS = "time-over-n", "h200.csv", 1
TOKENS = results.SWEEP_TOKENS


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--regime", choices=sorted(results.RESULTS.allowed["regime"]), default="sustained",
                        help="how it was timed (default: %(default)s)")


def collect(csv: Path, rows: list[results.Row], arguments: Namespace) -> figure.Points:
    ours: dict[str, dict[int, float]] = {}
    peers: dict[str, dict[int, float]] = {}
    for row in sorted(rows, key=lambda row: (*rungs.position(row.stage), row.n)):
        if ((row.is_rung or row.kind == "peer") and row.source == "measured" and row.batch * row.n == TOKENS and row.d == results.HEADLINE["d"]
                and not row.causal and row.is_plain and row.regime == arguments.regime and row.ms_median is not None):
            lines = ours if row.is_rung else peers
            lines.setdefault(row.stage, {})[row.n] = float(f"{row.ms_median / (row.batch * row.heads):.4g}")
    if not ours:
        raise results.NotMeasured(f"{csv}: no sweep with batch x N = {TOKENS}, {arguments.regime}. Measured by: ladder bench --sweep")
    gpu = next(row.gpu for row in rows if row.stage in ours)
    others = [[name, "peer", list(map(list, points.items()))] for name, points in peers.items()]
    panel = {"y": "milliseconds per head", "of": "", "title": "", "log_n": True, "log_y": True,
             "lines": over_n.merged(ours) + others, "table": over_n.separate(ours) + others}
    return {"title": f"{gpu}, batch x N = {TOKENS}, d = {results.HEADLINE['d']}, dense, {arguments.regime}. Rungs within 10 % share a line; "
                     "dotted, hollow: other implementations", "panels": [panel]}


def render(axes, points: figure.Points) -> None:
    over_n.render(axes, points)
    handles, labels = axes.get_legend_handles_labels()
    last = {name: line[-1][1] for name, _, line in points["panels"][0]["lines"]}
    ordered = sorted(zip(handles, labels), key=lambda entry: -last[entry[1]])  # top to bottom as the lines end
    axes.legend(*zip(*ordered), loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, fontsize=8, labelspacing=0.6)


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render, add_arguments, CSV, results.read, PANELS))
