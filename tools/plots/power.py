"""The clock is a result: for every kernel that was timed alone, the clock that its power left it over the work that it does in one clock. On a
dashed line the rate is the same."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NAME = "power"
SMS = 132  # of the card of h200.csv
ALONGSIDE = {"fa2": "FA2", "fa3": "FlashAttention-3", "cudnn_bhnd": "cuDNN", "mma_sync": "mma.sync alone", "wgmma": "wgmma alone"}
NAMED = ("01_base", "02_swizzle", "03_kvpipe", "06_batched", "16_store", "20_wgmma", "23_producer", "26_nomax", "34_under")
# Where a label stands that would lie over another: points to the right, points up, which end is near.
PLACES = {"mma_sync": (0, 8, "center"), "wgmma": (18, 8, "right"), "cudnn_bhnd": (-7, -3, "right"), "fa3": (6, -15, "right"), "fa2": (0, -14, "left"),
          "03_kvpipe": (-7, -3, "right"), "26_nomax": (-7, -3, "right")}
EQUAL = (100, 200, 300, 400, 500, 600, 700, 800)  # TFLOPS


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    try:
        measured, peers, ceilings = results.select(csv, rows, results.Selection(regime="alone"))
    except results.ResultsError:
        raise results.NotMeasured(f"{csv}: nothing was measured alone yet. Measured by: ladder bench --alone") from None
    known = rungs.by_name()
    shown = [row for row in measured + [row for row in peers + ceilings if row.stage in ALONGSIDE] if row.flop_per_clk_sm and row.clock_mhz]
    runs = figure.Runs(shown)
    return {"title": f"{measured[0].gpu}, {results.Selection(regime='alone')}", "runs": runs.said,
            "rows": [[row.stage, known[row.stage].part if row.stage in known else row.kind, runs.of(row), round(row.flop_per_clk_sm), round(row.clock_mhz)]
                     for row in shown]}


def heights(points: figure.Points) -> list[float]:
    del points
    return [5.0]


def render(axes: list, points: figure.Points) -> None:
    axis, colours = axes[0], figure.part_colours()
    across = [100 + 10 * i for i in range(420)]
    for tflops in EQUAL:
        line = [(x, tflops * 1e6 / SMS / x) for x in across if 1200 <= tflops * 1e6 / SMS / x <= 1850]
        axis.plot(*zip(*line), color=figure.GRID, linestyle="--", linewidth=1, zorder=0)
        axis.annotate(f"{tflops}", line[-1], xytext=(0, -2), textcoords="offset points", color=figure.SOFT, ha="center", va="top", fontsize=10)
    for name, part, run, work, clock in points["rows"]:
        axis.plot(work, clock, marker="o" if part in colours else "D", linestyle="none", markersize=5, color=colours.get(part, figure.INK),
                  markerfacecolor=colours.get(part, figure.PAPER))
        label = name.partition("_")[0] if name in NAMED else ALONGSIDE.get(name, "")
        if label:
            right, up, end = PLACES.get(name, (5, 5, "left"))
            axis.annotate(f"{label} {run}".rstrip(), (work, clock), xytext=(right, up), textcoords="offset points", ha=end, fontsize=10)
    axis.set_xlim(0, 4350)
    axis.set_ylim(1165, 1880)
    axis.set_xlabel("FLOP per clock and SM: what a kernel does in a clock")
    axis.set_ylabel("MHz: the clock that its power leaves it")
    axis.figure.suptitle(figure.lines(points["title"], "dashed: the same TFLOPS", points["runs"]), fontsize=figure.TYPE)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    return [("Work per clock, and the clock" + (f": {points['runs']}" if points["runs"] else ""), ["", "FLOP/clk/SM", "MHz"],
             [[name, f"{work} {run}".rstrip(), f"{clock} {run}".rstrip()] for name, _, run, work, clock in points["rows"]])]
