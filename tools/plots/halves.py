"""Both halves of the ladder under one roof: TFLOPS over the operations that there are for each byte that has to be read or written once. Many
queries stand on the right, under what their instructions reach; one query beside many keys on the left, under what the memory gives.

Many queries are rungs of GPU.csv at the README's shape, one query and a few the last rung for one length in GPU_decoding.csv."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NAME, CSV, read = "halves", results.DECODING, results.table
READ, ROOFS = "dram_read", ("mma_sync", "wgmma")
NAMED = ("00_naive", "01_base", "07_dbuf", "16_store", "38_seam")  # of those at one place
RUNG = "d05_dependent"


def decoding(row: dict[str, str]) -> list:
    """What it is called, operations for each byte of K and V, TFLOPS."""
    of = {key: int(value) for key, _, value in (word.partition("=") for word in row["problem"].split()) if value}
    operations = 4 * of["b"] * of["h"] * of["nq"] * of["nk"] * of["d"]
    bytes_read = 2 * 2 * of["b"] * of.get("kv", of["h"]) * of["nk"] * of["d"]
    return [f"b={of['b']} nk={of['nk']}", round(operations / bytes_read, 2), round(operations / float(row["us_median"]) / 1e6, 2)]


def collect(csv: Path, rows: list[dict[str, str]]) -> figure.Points:
    few = [row for row in rows if row["attention"] == row["last"] == RUNG]
    if not few:
        raise results.NotMeasured(f"{csv}: no row of {RUNG} yet. Measured by:  python/measure/decoding.py")
    timed = csv.with_name(csv.name.replace("_decoding", ""))
    selection = results.Selection()
    many, _, ceilings = results.select(timed, results.read(timed), selection)
    reached = [row.tflops for row in ceilings if row.stage == READ]
    if not reached:
        raise results.NotMeasured(f"{timed}: no {READ} yet")
    return {"title": f"{few[0]['gpu']}; right: {selection}; left: one query and a few, in a CUDA graph", "tb_per_s": round(reached[0], 2),
            "roofs": sorted([round(row.tflops, 1), row.stage] for row in ceilings if row.stage in ROOFS), "few": [decoding(row) for row in few],
            "many": [[row.stage, selection.n / 2, round(row.tflops, 1)] for row in many]}  # 4 n^2 d for 4 n d numbers of 2 bytes


def heights(points: figure.Points) -> list[float]:
    del points
    return [5.0]


def render(axes: list, points: figure.Points) -> None:
    axis, colours, parts = axes[0], figure.part_colours(), {rung.name: rung.part for rung in rungs.known()}
    rate, highest = points["tb_per_s"], points["roofs"][-1][0]
    left, right = 0.5, 3e4
    axis.plot([left, highest / rate], [left * rate, highest], color=figure.INK, linewidth=1.4)
    axis.annotate(f"{rate:.2f} TB/s", (24, 24 * rate), xytext=(-6, 2), textcoords="offset points", ha="right", va="bottom")
    for above, (tflops, name) in enumerate(points["roofs"]):
        axis.plot([tflops / rate, right], [tflops, tflops], color=figure.INK, linewidth=1.4)
        axis.annotate(f"{name} {tflops:.0f}", (tflops / rate * 1.3, tflops), xytext=(0, 2 if above else -2), textcoords="offset points", va="bottom" if above else "top")
    for stage, x, y in points["many"]:
        axis.plot(x, y, linestyle="none", marker="o", markersize=6, color=colours[parts[stage]], markeredgecolor=figure.PAPER, markeredgewidth=0.6)
        if stage in NAMED:
            axis.annotate(stage.split("_")[0], (x, y), xytext=(7, -3), textcoords="offset points")
    for _, x, y in points["few"]:
        axis.plot(x, y, linestyle="none", marker="o", markersize=6, color=colours[parts[RUNG]], markeredgecolor=figure.PAPER, markeredgewidth=0.6)
    axis.set_xscale("log")
    axis.set_yscale("log")
    figure.powers_of_ten(axis.xaxis)
    figure.powers_of_ten(axis.yaxis)
    axis.set_xlim(left, right)
    axis.set_ylim(1, highest * 2)
    axis.set_xlabel("operations for each byte that is read or written once")
    axis.set_ylabel(figure.TFLOPS_LABEL.partition(",")[0])
    figure.part_legend(axis, {parts[stage] for stage, *_ in points["many"]} | {parts[RUNG]}, 0.5)
    axis.figure.suptitle(points["title"].replace("; ", ";\n"), fontsize=figure.TYPE)
