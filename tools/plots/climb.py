"""The climb in ten steps: ten rungs as multiples of FlashAttention-2, which ran beside each of them, on a logarithmic axis, with lines where
other libraries stand."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NAME = "climb"
# The ten steps, each with its idea in the words of somebody who has not read the chapter.
STEPS = {
    "00_naive": "the formula, three kernels",
    "p07_tiled": "the online softmax, a tile of keys at a time",
    "01_base": "tensor cores; scores never leave the registers",
    "02_swizzle": "one XOR removes every bank conflict",
    "03_kvpipe": "copy the next tile while you compute on this one",
    "08_fragorder": "load registers in the order in which `mma` wants them",
    "16_store": "the last stop without Hopper's tensor-core instruction",
    "20_wgmma": "the tensor cores read shared memory themselves",
    "23_producer": "warps that only copy, as in FlashAttention-3",
    "26_nomax": "make the weights first, look for a maximum only if they overflow",
}
LIBRARIES = {"fa2": "FlashAttention-2", "cudnn_bhnd": "cuDNN", "fa3": "FlashAttention-3"}


def rows_of(csv: Path, rows: list[results.Row], selection: results.Selection) -> tuple[list[results.Row], list[results.Row]]:
    measured, peers, _ = results.select(csv, rows, selection)
    return [row for row in measured if row.stage in STEPS], [row for row in peers if row.stage in LIBRARIES]


def share(row: results.Row, peers: list[results.Row]) -> float | None:
    """Of FlashAttention-2: paired where it ran beside it; else, of what is timed apart, a quotient of two rates."""
    if row.values["vs_fa2"] is not None:
        return row.values["vs_fa2"]
    fa2 = next((peer for peer in peers if peer.stage == "fa2"), None)
    return None if fa2 is None else row.tflops / fa2.tflops


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    selection = results.Selection()
    steps, peers = rows_of(csv, rows, selection)
    if not steps:
        raise results.NotMeasured(f"{csv}: none of the ten steps was measured at {selection}")
    known = rungs.by_name()
    return {"title": f"{steps[0].gpu}, {selection}",
            "rungs": [[row.stage, known[row.stage].part, round(share(row, peers) or 0, 5)] for row in steps],
            "lines": [[LIBRARIES[row.stage], round(share(row, peers) or 0, 5)] for row in sorted(peers, key=lambda row: row.tflops)]}


def heights(points: figure.Points) -> list[float]:
    return [0.27 * len(points["rungs"]) + 1.3]


def render(axes: list, points: figure.Points) -> None:
    axis, colours = axes[0], figure.part_colours()
    for i, (_, part, times) in enumerate(points["rungs"]):
        axis.barh(i, times, height=0.7, color=colours[part])
        axis.annotate(f"{times:.3f}" if times < 0.1 else f"{times:.2f}", (times, i), xytext=(5, 0), textcoords="offset points", va="center",
                      bbox={"facecolor": figure.PAPER, "edgecolor": "none", "pad": 1})
    for i, (name, times) in enumerate(points["lines"]):
        axis.axvline(times, color=figure.INK, linewidth=1, linestyle=figure.DASHES[i % len(figure.DASHES)], label=f"{name}, {times:.3g}", zorder=0)
    axis.set_xscale("log")
    axis.set_xlim(0.003, 6)
    axis.set_xticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    axis.set_ylim(len(points["rungs"]) - 0.4, -0.6)
    axis.set_yticks(range(len(points["rungs"])), [rung[0] for rung in points["rungs"]])
    axis.grid(False, axis="y")
    axis.set_xlabel("times FlashAttention-2")
    axis.figure.suptitle(points["title"].replace(", d =", ",\nd ="), fontsize=figure.TYPE)
    figure.legend_below(axis, 0.45)
