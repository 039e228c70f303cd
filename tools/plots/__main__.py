"""Draws a figure of docs/results: python3 -m tools.plots climb [docs/results/h200.csv] [-o SVG]

Exit code: 0 done; 2 something is wrong; 77 not measured yet, or matplotlib is missing."""
from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from tools import results, rungs
from tools.plots import figure

NO_FIGURES = {"__main__", "__init__", "figure", "over_n", "traffic"}  # what figures share
KNOWN = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - NO_FIGURES)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.plots", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=KNOWN)
    parser.add_argument("csv", type=Path, nargs="?", help="measured results (default: the figure's file in docs/results, h200.csv for most)")
    parser.add_argument("-o", "--output", type=Path, metavar="SVG", help="where to write (default: docs/figures/CSV-FIGURE.svg)")
    arguments = parser.parse_args(words)
    module = importlib.import_module(f"tools.plots.{arguments.figure}")
    csv = arguments.csv or results.RESULTS / getattr(module, "CSV", "h200.csv")
    output = arguments.output or figure.path_of(csv, module.NAME)
    try:
        if output.suffix != ".svg":
            raise results.ResultsError(f"{output}: the output's name must end in .svg")
        points = figure.points_of(module, csv)
        figure.draw(points, module.render, output, module.heights(points))
        results.tell()
    except results.NotMeasured as error:
        print(error, file=sys.stderr)
        return 77
    except (results.ResultsError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{parser.prog} needs {error.name}: apt-get install python3-{error.name}", file=sys.stderr)
        return 77
    except OSError as error:
        print(f"{output}: {error.strerror}", file=sys.stderr)
        return 2
    print(output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
