"""What the figures share: the look, and files that change only when their data do.

Each is a module with its NAME. `collect(csv, rows)` gives the points, `heights(points)` the panels' heights, `render(axes, points)` draws.
`CSV` is its file in docs/results, if not the card's, and `read(path)` makes rows of it."""
from __future__ import annotations

import hashlib
import json
import math
import string
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from tools import results, rungs
from tools.paths import DOCS

FIGURES = DOCS / "figures"
RESULTS = results.RESULTS

# A figure is as wide as a phone, so that its type of 10 points is 9 pixels there, and as large as the text on a screen.
# What a figure holds is stacked and never side by side.
WIDTH, TYPE = 5.3, 10  # inches, points
# Told apart without colour too: lines by marker and dash. The colours are Okabe and Ito's.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7a5195", "#882255",
          "#999933")
MARKERS = "osD^vPX*<>"
DASHES = ("-", "--", "-.")
INK, SOFT, GRID, PAPER = "#222222", "#767676", "#d8d8d8", "#ffffff"
# What stands for a colour on a dark page. An SVG asks the reader's system by itself, also as an image on a code host.
ON_DARK = {PAPER: "#14181d", INK: "#e6edf3", SOFT: "#9aa7b4", GRID: "#3a424c", "#000000": "#e6edf3", "#0072b2": "#56a9e0", "#d55e00": "#ff8a3d",
           "#009e73": "#35c49b", "#7a5195": "#b48ad1", "#882255": "#e07fac", "#999933": "#c4c45c"}
TFLOPS_LABEL = "TFLOPS, counting 4 B H N² d"

# What a figure plots, as JSON: lists, dicts, strings and rounded numbers.
Points = dict


def mark(i: int) -> dict[str, str]:
    """Colour and marker of the i-th line or point: no two of the first hundred have both alike."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[(i + i // len(MARKERS)) % len(MARKERS)]}


def part_colours() -> dict[str, str]:
    """A colour for each part of the ladder, the same in every figure."""
    return {part.name: COLORS[i % len(COLORS)] for i, part in enumerate(rungs.parts())}


def powers_of_ten(axis) -> None:
    """Ticks of a logarithmic axis whose exponents are letters of their own, as large as the others."""
    high = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def said(value: float, _) -> str:
        exponent = round(math.log10(value))
        return f"{10**exponent:g}" if -1 <= exponent <= 3 else "10" + str(exponent).translate(high)

    axis.set_major_formatter(said)


def legend_below(axes, inches: float, **options) -> None:
    """A legend so far below the axes, whatever their height."""
    from matplotlib.transforms import ScaledTranslation

    below = axes.transAxes + ScaledTranslation(0, -inches, axes.figure.dpi_scale_trans)
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, 0), bbox_transform=below, labelspacing=0.2, **options)


def part_legend(axes, present: set[str], inches: float) -> None:
    from matplotlib.patches import Patch

    colours = part_colours()
    legend_below(axes, inches, handles=[Patch(facecolor=colours[part.name], label=part.title if part.name else "The ladder from 01 to 07")
                                        for part in rungs.parts() if part.name in present])


class Runs:
    """A letter for each run that rows are of, by date: rates of two runs are no race, so a figure says of which run each one is. Of one run
    alone there is nothing to say."""

    def __init__(self, rows: list[results.Row]) -> None:
        self.letters = {run: letter for run, letter in zip(sorted({(row.date, row.commit) for row in rows}), string.ascii_letters)}

    def of(self, *rows: results.Row) -> str:
        return "".join(sorted({self.letters[row.date, row.commit] for row in rows})) if len(self.letters) > 1 else ""

    @property
    def said(self) -> str:
        return f"{len(self.letters)} runs, a letter each: compare within one letter" if len(self.letters) > 1 else ""


def lines(*parts: str) -> str:
    """The head of a figure: what there is of it, a line each, and none before what the shape ends with."""
    return "\n".join(filter(None, parts)).replace(", d =", ",\nd =")


def digest(points: Points) -> str:
    """Names the data of a figure, so that a stale file is seen without drawing it again."""
    return "data sha256 " + hashlib.sha256(json.dumps(points, sort_keys=True).encode()).hexdigest()[:16]


def path_of(csv: Path, name: str) -> Path:
    """docs/results/h200.csv and "gain" make docs/figures/h200-gain.svg."""
    return FIGURES / f"{csv.stem}-{name}.svg"


def is_current(svg: Path, points: Points) -> bool:
    return svg.is_file() and digest(points) in svg.read_text(encoding="utf-8")


def points_of(module: ModuleType, csv: Path) -> Points:
    return module.collect(csv, getattr(module, "read", results.read)(csv))


def make(points: Points, render: Callable, heights: list[float]):
    """A drawn figure, of panels of these heights in inches, one below the other; `render` gets the list of their
    axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({
        "svg.hashsalt": "flash-ladder", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": TYPE,
        "axes.titlesize": TYPE, "axes.labelsize": TYPE, "legend.fontsize": TYPE, "xtick.labelsize": TYPE, "ytick.labelsize": TYPE,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GRID,
        "axes.axisbelow": True, "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "hatch.linewidth": 0.6,
    })
    figure, axes = pyplot.subplots(nrows=len(heights), figsize=(WIDTH, sum(heights)), height_ratios=heights, layout="constrained", squeeze=False)
    render([row[0] for row in axes], points)
    return figure


def for_dark_pages(text: str) -> str:
    rules = "".join(f'[style*="{kind}: {light}"]{{{kind}:{dark} !important}}' for light, dark in ON_DARK.items() for kind in ("fill", "stroke"))
    style = f"<style>@media screen and (prefers-color-scheme: dark) {{text{{fill:{ON_DARK[INK]}}}{rules}}}</style>"
    return text.replace("<defs>", f"{style}\n <defs>", 1)


def draw(points: Points, render: Callable, svg: Path, heights: list[float]) -> None:
    from matplotlib import pyplot

    figure = make(points, render, heights)
    svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(svg, metadata={"Date": None, "Description": digest(points)})
    svg.write_text(for_dark_pages(svg.read_text(encoding="utf-8")), encoding="utf-8")
    pyplot.close(figure)
