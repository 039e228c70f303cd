"""TFLOPS over the sequence length, for every rung and peer, at a constant number of tokens (batch times N)."""
from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NAME = "tflops-over-n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, help="batch times N of the sweep (default: the file's most frequent)")
    parser.add_argument("--heads", type=int, default=results.HEADLINE["heads"], help="heads (default: %(default)s)")
    parser.add_argument("--d", type=int, default=results.HEADLINE["d"], help="head dimension (default: %(default)s)")
    parser.add_argument("--causal", action="store_true", help="causal attention instead of dense")
    parser.add_argument("--regime", choices=sorted(results.words("regime")), default="turns",
                        help="how it was timed (default: %(default)s)")


def collect(csv: Path, rows: list[results.Row], arguments: argparse.Namespace) -> figure.Points:
    wanted = (arguments.heads, arguments.d, arguments.causal, arguments.regime)
    rows = [row for row in rows if (row.is_rung or row.kind == "peer") and row.source == "measured" and row.is_plain
            and (row.heads, row.d, row.causal, row.regime) == wanted]
    if not any(row.is_rung for row in rows):
        raise results.ResultsError(f"{csv}: no stage was measured at heads {wanted[0]}, d = {wanted[1]}, {wanted[3]}")
    tokens = arguments.tokens or Counter(row.batch * row.n for row in rows).most_common(1)[0][0]
    lines: dict[str, list[results.Row]] = {}
    for row in sorted(rows, key=lambda row: (*rungs.position(row.stage), row.n)):
        if row.batch * row.n == tokens:
            lines.setdefault(row.stage, []).append(row)
    if not lines:
        raise results.ResultsError(f"{csv}: nothing was measured with batch x N = {tokens}")
    kind = "causal" if arguments.causal else "dense"
    runs = figure.Runs(sum(lines.values(), []))
    return {
        "title": f"{rows[0].gpu}, batch x N = {tokens}, heads {wanted[0]}, d = {wanted[1]}, {kind}, {wanted[3]}", "runs": runs.said,
        "lines": [[name, line[0].kind == "peer", [[row.n, round(row.tflops, 1)] for row in line]] for name, line in lines.items()],
        "of": {name: runs.of(*line) for name, line in lines.items()},
        "parts": {rung.name: rung.part for rung in rungs.known() if rung.name in lines},
    }


def named(points: figure.Points) -> list[str]:
    """The fastest rung of each part at the largest N, and every peer. The others are there without a name."""
    best: dict[str, tuple[float, str]] = {}
    for name, is_peer, line in points["lines"]:
        if not is_peer:
            part = points["parts"][name]
            best[part] = max(best.get(part, (0.0, "")), (line[-1][1], name))
    return [name for name, is_peer, _ in points["lines"] if is_peer or name in {rung for _, rung in best.values()}]


def heights(points: figure.Points) -> list[float]:
    return [4.2 + 0.19 * ((len(named(points)) + 1) // 2)]


def render(axes: list, points: figure.Points) -> None:
    axis, shown = axes[0], named(points)
    for name, _, line in points["lines"]:
        if name not in shown:
            axis.plot([n for n, _ in line], [tflops for _, tflops in line], color=figure.GRID, linewidth=1.2)
    for name, is_peer, line in points["lines"]:
        if name in shown:
            i = shown.index(name)
            axis.plot([n for n, _ in line], [tflops for _, tflops in line], label=name + f" {points['of'][name]}".rstrip(), **figure.mark(i), markerfacecolor=figure.PAPER if is_peer else None,
                      linestyle=":" if is_peer else figure.DASHES[i % 3], linewidth=1.8 if is_peer else 1.3, markersize=5)
    lengths = sorted({n for _, _, line in points["lines"] for n, _ in line})
    axis.set_xscale("log", base=2)
    axis.set_xticks(lengths, [str(n) for n in lengths])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    axis.set_xlabel("sequence length N")
    axis.set_ylabel(figure.TFLOPS_LABEL)
    axis.figure.suptitle(figure.lines(points["title"], "named: the best of each part; grey: the other rungs; dotted: others", points["runs"]), fontsize=figure.TYPE)
    handles, labels = axis.get_legend_handles_labels()
    last = {name + f" {points['of'][name]}".rstrip(): line[-1][1] for name, _, line in points["lines"]}
    ordered = sorted(zip(handles, labels), key=lambda entry: -last[entry[1]])  # top to bottom as the lines end
    handles, labels = zip(*ordered)
    figure.legend_below(axis, 0.45, handles=handles, labels=labels, ncols=2)


if __name__ == "__main__":
    sys.exit(figure.main(NAME, __doc__, collect, render, heights, add_arguments))
