"""What the figures share: the look, the command line, and files that change only when their data do."""
from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import results
from results import rungs

FIGURES = results.ROOT / "docs" / "figures"
RESULTS = results.ROOT / "docs" / "results"

# Told apart without colour: bars by hatch, lines by marker and dash; the colours are Okabe and Ito's.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7a5195", "#882255",
          "#999933")
MARKERS = "osD^vPX*<>"
DASHES = ("-", "--", "-.")
INK = "#222222"
TFLOPS_LABEL = "TFLOPS, counting 4 B H N$^2$ d"

# What a figure plots, as JSON: lists, dicts, strings and rounded numbers.
Points = dict


def mark(i: int) -> dict[str, str]:
    """Colour and marker of the i-th line or point: no two of the first hundred have both alike."""
    return {"color": COLORS[i % len(COLORS)], "marker": MARKERS[(i + i // len(MARKERS)) % len(MARKERS)]}


def digest(points: Points) -> str:
    """Names the data of a figure, so that a stale file is seen without drawing it again."""
    return "data sha256 " + hashlib.sha256(json.dumps(points, sort_keys=True).encode()).hexdigest()[:16]


def path_of(csv: Path, name: str) -> Path:
    """docs/results/h200.csv and "gain" make docs/figures/h200-gain.svg; the PNG lies beside it."""
    return FIGURES / f"{csv.stem}-{name}.svg"


def is_current(svg: Path, points: Points) -> bool:
    return svg.is_file() and digest(points) in svg.read_text(encoding="utf-8")


def draw(points: Points, render: Callable, svg: Path, panels: int = 1, height: float = 5.8) -> None:
    """Writes SVG and PNG. An opaque ground keeps both readable on dark pages and on paper. More than one panel stand side by
    side, and `render` gets a list of axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update({
        "svg.hashsalt": "flash-ladder", "svg.fonttype": "none", "font.family": "DejaVu Sans", "font.size": 10,
        "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#d8d8d8",
        "axes.axisbelow": True, "figure.facecolor": "white", "savefig.facecolor": "white", "hatch.linewidth": 0.6,
    })
    figure, axes = pyplot.subplots(ncols=panels, figsize=(9.5 if panels == 1 else 12.5, height), layout="constrained")
    render(axes if panels == 1 else list(axes), points)
    svg.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(svg, metadata={"Date": None, "Description": digest(points)})
    figure.savefig(svg.with_suffix(".png"), dpi=150, metadata={"Software": None, "Description": digest(points)})
    pyplot.close(figure)


def main(name: str, description: str, collect: Callable, render: Callable,
         add_arguments: Callable = results.add_selection_arguments, csv: str = "h200.csv", read: Callable = results.read,
         panels: int = 1, height: float = 5.8) -> int:
    """The command line of one figure: `collect(csv, rows, arguments)` gives the points, `render(axes, points)` draws.
    `read(path)` makes rows of the file in docs/results."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("csv", type=Path, nargs="?", default=RESULTS / csv,
                        help=f"measured results (default: docs/results/{csv})")
    parser.add_argument("-o", "--output", type=Path, metavar="SVG",
                        help=f"where to write; a PNG goes beside it (default: docs/figures/CSV-{name}.svg)")
    add_arguments(parser)
    arguments = parser.parse_args()
    output = arguments.output or path_of(arguments.csv, name)
    try:
        if output.suffix != ".svg":
            raise results.ResultsError(f"{output}: the output's name must end in .svg; the PNG is named after it")
        points = collect(arguments.csv, read(arguments.csv), arguments)
        draw(points, render, output, panels, height)
        results.tell()
    except results.NotMeasured as error:
        print(error, file=sys.stderr)
        return 77
    except (results.ResultsError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{parser.prog} needs {error.name}: apt-get install python3-matplotlib", file=sys.stderr)
        return 77
    except OSError as error:
        print(f"{output}: {error.strerror}", file=sys.stderr)
        return 2
    print(output)
    return 0
