"""Which attention is fastest on a card: for each problem of CARD_peers.csv how many times as long as flash_ladder the fastest of the others
takes, with its interval, on a logarithmic axis."""
from __future__ import annotations

from pathlib import Path

from tools import results
from tools.plots import figure

NAME, CSV, read = "which", "h200_peers.csv", results.table
KINDS = ("forward", "backward", "generating")
NAMES = {"fa3": "FlashAttention-3", "fa4": "FlashAttention-4", "cudnn": "cuDNN"}
TYPES = ("bf16", "fp16")
LEAST, TICKS = 0.1, (0.1, 0.2, 0.5, 1, 2)


def kind_of(problem: str) -> str:
    words = problem.split()
    return "backward" if "backward" in words else "generating" if "nq=1" in words else "forward"


def said(problem: str) -> str:
    """A problem as a reader names it: without its kind, its type, and how many sequences and heads there are, unless heads share keys or
    one query is all."""
    of = dict(word.partition("=")[::2] for word in problem.split())
    words = [f"b={of['b']}"] * (kind_of(problem) == "generating") + ([f"h={of['h']}:{of['kv']}"] if "kv" in of else [])
    if "lens_q" in of:
        words.append(f"{of['lens_q'].count(',') + 1} lengths")
    return " ".join(words + [word for word in problem.split() if word.partition("=")[0] not in ("backward", "b", "h", "kv", "lens_q", "lens_k", *TYPES)
                             and word != "nq=1"])


def cells(rows: list[dict[str, str]], words: str = "") -> dict[tuple[str, str], dict[str, str]]:
    """Of CARD_grid_peers.csv, of each problem that has all of these words, and of its inputs, the fastest of the others."""
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        if set(words.split()) <= {*row["problem"].split(), row["inputs"]}:
            found.setdefault((row["problem"], row["inputs"]), []).append(row)
    return {cell: fastest for cell, its in found.items() if (fastest := best({row["attention"]: row for row in its})) is not None}


def races(rows: list[dict[str, str]]) -> dict[str, dict[str, dict[str, str]]]:
    """Of each problem the rows of those that ran, by their names."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        found.setdefault(row["problem"], {})[row["attention"]] = row
    return found


def best(race: dict[str, dict[str, str]]) -> dict[str, str] | None:
    """The fastest of the others, where flash_ladder takes the problem."""
    others = [row for name, row in race.items() if name != "flash_ladder"]
    return min(others, key=lambda row: float(row["us_median"])) if others and "flash_ladder" in race else None


def collect(csv: Path, rows: list[dict[str, str]]) -> figure.Points:
    del csv
    panels = []
    for kind in KINDS:
        points = []
        for problem, race in races(rows).items():
            row = best(race)
            if kind_of(problem) == kind and row is not None:
                dtype = next(word for word in problem.split() if word in TYPES)
                points.append([said(problem), dtype, *(float(row[column]) for column in ("over", "over_lo", "over_hi"))])
        panels.append([kind, points])
    return {"title": f"{rows[0]['gpu']}: the time of the fastest library over flash_ladder's", "panels": panels}


def lines(points: list) -> list[str]:
    return list(dict.fromkeys(said for said, *_ in points))


def heights(points: figure.Points) -> list[float]:
    return [0.22 * len(lines(of_kind)) + 0.7 for _, of_kind in points["panels"]]


def render(axes: list, points: figure.Points) -> None:
    for axis, (kind, of_kind) in zip(axes, points["panels"]):
        order = lines(of_kind)
        for i, dtype in enumerate(TYPES):
            rows = [(order.index(name), middle, low, high) for name, its, middle, low, high in of_kind if its == dtype]
            for at, middle, low, high in rows:
                axis.plot([max(low, LEAST), max(high, LEAST)], [at, at], color=figure.COLORS[i], linewidth=1.5)
                axis.plot(max(middle, LEAST), at, clip_on=False, marker="<" if middle < LEAST else "oD"[i], markersize=4.5, color=figure.COLORS[i], markerfacecolor=(figure.COLORS[i], figure.PAPER)[i], linestyle="none",
                          label=({"bf16": "bf16", "fp16": "f16"}[dtype] + f"; a triangle: below {LEAST:g}" * (i == 1)) if at == rows[0][0] and middle >= LEAST else None)
        axis.axvline(1, color=figure.INK, linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.set_xlim(LEAST, 2.5)
        axis.set_xticks(TICKS, [f"{tick:g}" for tick in TICKS])
        axis.minorticks_off()
        axis.set_ylim(len(order) - 0.4, -0.6)
        axis.set_yticks(range(len(order)), order)
        axis.set_title(kind, loc="left")
    axes[-1].set_xlabel("above 1 flash_ladder is faster")
    figure.legend_below(axes[-1], 0.45, handletextpad=0.1)
    axes[0].figure.suptitle(points["title"].replace(": ", ":\n"), fontsize=figure.TYPE)
