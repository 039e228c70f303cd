"""The two questions about speed: TFLOPS in turns, at a clock that is the same for everybody, and alone, at the clock
that its own power leaves a kernel. A line joins the two."""
from __future__ import annotations

from pathlib import Path

from tools import results
from tools.plots import figure

NAME = "regimes"
REGIMES = ("turns", "alone")
WORDS = ("in turns", "alone")
NOT_FLOPS = ("ex2", "l2_read", "dram_read")  # ceilings that count something else


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    found: dict[str, dict[str, results.Row]] = {}
    for regime in REGIMES:
        try:
            groups = results.select(csv, rows, results.Selection(regime=regime))
        except results.ResultsError:
            if regime == REGIMES[0]:
                raise
            raise results.NotMeasured(f"{csv}: nothing was measured alone yet. Measured by: ladder bench --alone") from None
        for row in (row for group in groups for row in group if row.stage not in NOT_FLOPS):
            found.setdefault(row.stage, {})[regime] = row
    both = {name: [by[regime] for regime in REGIMES] for name, by in found.items() if len(by) == len(REGIMES)}
    if not both:
        raise results.NotMeasured(f"{csv}: nothing was measured both in turns and alone yet. Measured by: ladder bench --alone")
    first = next(iter(both.values()))[0]
    runs = figure.Runs([row for by in both.values() for row in by])
    shape = str(results.Selection()).rpartition(", ")[0]
    return {"title": f"{first.gpu}, {shape}", "runs": runs.said, "of": {name: [runs.of(row) for row in by] for name, by in both.items()},
            "rows": [[name, by[0].kind, *(round(row.tflops, 1) for row in by), *(round(row.clock_mhz) if row.clock_mhz else None for row in by)]
                     for name, by in both.items()]}


def heights(points: figure.Points) -> list[float]:
    return [0.24 * len(points["rows"]) + 1.3]


def render(axes: list, points: figure.Points) -> None:
    axis = axes[0]
    for i, (_, kind, turns, alone, *_) in enumerate(points["rows"]):
        axis.plot([turns, alone], [i, i], color=figure.SOFT, linewidth=1.5, zorder=1)
        for tflops, marker, fill in ((turns, "o", figure.COLORS[0]), (alone, "D", figure.PAPER)):
            axis.plot(tflops, i, marker=marker, color=figure.COLORS[0], markerfacecolor=fill, markersize=6, linestyle="none",
                      label={"o": WORDS[0], "D": WORDS[1]}[marker] if i == 0 else None)
    axis.set_yticks(range(len(points["rows"])), [" ".join([row[0], *filter(None, points["of"][row[0]])]) for row in points["rows"]])
    axis.set_ylim(len(points["rows"]) - 0.5, -0.5)
    axis.set_xlim(left=0)
    axis.grid(False, axis="y")
    axis.set_xlabel(figure.TFLOPS_LABEL)
    axis.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.4, 1.0))
    axis.figure.suptitle(figure.lines(points["title"], points["runs"], "first in turns, then alone" if points["runs"] else ""), fontsize=figure.TYPE)


def table(points: figure.Points) -> list[tuple[str, list[str], list[list[str]]]]:
    shown = lambda value, form: "" if value is None else format(value, form)
    of = lambda name, value, i: f"{value:.1f} {points['of'][name][i]}".rstrip()
    return [("TFLOPS, and the clock" + (f": {points['runs']}. A ratio of two letters is of two runs" if points["runs"] else ""), ["", "in turns", "MHz", "alone", "MHz", "alone / in turns"],
             [[name, of(name, turns, 0), shown(mhz, "d"), of(name, alone, 1), shown(own, "d"), f"{alone / turns:.3f}"]
              for name, _, turns, alone, mhz, own in points["rows"]])]
