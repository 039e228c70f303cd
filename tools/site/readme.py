"""Writes the ten steps of the README and the whole table of docs/ladder.md: titles from the chapters, TFLOPS from docs/results.

With --check nothing is written: exits 1 when the table, or a figure in docs/figures, is older than its data.
"""
from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Collection
from pathlib import Path

from tools import results, rungs
from tools.paths import ROOT
from tools.plots import bytes_over_n, climb, engines, figure, memory_over_n, power, regimes, roofline, tflops_over_n, tflops_per_rung, time_over_n, traffic, waterfall
from tools.site import prose

BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"  # the whole table
CLIMB_BEGIN, CLIMB_END = "<!-- climb:begin -->", "<!-- climb:end -->"  # ten steps of it
TOP = "The ladder"  # its top level
FIGURES = (
    (climb, results.add_selection_arguments),
    (tflops_per_rung, results.add_selection_arguments),
    (waterfall, results.add_selection_arguments),
    (tflops_over_n, tflops_over_n.add_arguments),
    (time_over_n, time_over_n.add_arguments),
    (regimes, regimes.add_arguments),
    (power, power.add_arguments),
    (engines, engines.add_arguments),
)
TRAFFIC_FIGURES = ((bytes_over_n, bytes_over_n.add_arguments), (memory_over_n, bytes_over_n.add_arguments),
                   (roofline, bytes_over_n.add_arguments))


class Stale(Exception):
    """What is older than its data, and how to renew it."""


def title(rung: rungs.Rung) -> str:
    """The idea in a few words: the chapter's title, behind the rung's name."""
    chapter = rung.path / "README.md"
    heading = chapter.read_text(encoding="utf-8").partition("\n")[0] if chapter.is_file() else ""
    return (heading.partition(": ")[2] or rung.idea).replace("|", "\\|")


def percent(ratio: float) -> str:
    """A ratio of rates as a gain."""
    gain = (ratio - 1) * 100
    return f"{gain:+.0f} %" if abs(gain) >= 10 else f"{gain:+.1f} %"


def gain(rung: rungs.Rung, measured: dict[str, results.Row]) -> str:
    """Over the rung that it starts from. Where the default tile is another one, also how much of it remains at that
    rung's tile."""
    row = measured.get(rung.name)
    if row is None or row.vs_previous is None:
        return ""
    if row.verdict == "same":
        return "same"
    before = rungs.find(rung.previous)
    same_tile = measured.get(f"{rung.name}[{before.variants[0].label}]") if before.variants[0].label != rung.variants[0].label else None
    if same_tile is None or same_tile.vs_previous is None:
        return percent(row.vs_previous)
    with_that_tile = "same" if same_tile.verdict == "same" else percent(same_tile.vs_previous)
    return f"{percent(row.vs_previous)}; {with_that_tile} at the tile before"


def shown(value: float, few: float) -> str:
    """A digit more where there are few."""
    return f"{value:.1f}" if value < few else f"{value:.0f}"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def ten_steps(csv: Path) -> str:
    """What stands between the README's markers."""
    selection = results.Selection()
    steps, peers = climb.rows_of(csv, results.read(csv), selection)
    lines = ["| rung | the idea | TFLOPS | x FlashAttention-2 |", "|---|---|---:|---:|"]
    for row in steps:
        rung = rungs.by_name()[row.stage]
        lines.append(f"| [{rung.name}]({rung.directory}/README.md) | {climb.STEPS[row.stage]} | {shown(row.tflops, 10)} | {times(climb.share(row, peers))} |")
    for peer in sorted(peers, key=lambda row: row.tflops):
        lines.append(f"| {climb.LIBRARIES[peer.stage]} | | {peer.tflops:.0f} | {times(climb.share(peer, peers))} |")
    return "\n".join(lines)


def timed_anywhere(folder: Path) -> set[str]:
    """Rungs that a file of results has a row of, whatever the card and the problem."""
    tables_of = (path for path in sorted(folder.glob("*.csv")) if path.read_text(encoding="utf-8").partition("\n")[0].split(",") == results.columns("results"))
    return {row.stage for path in tables_of for row in results.read(path)}


def tables(measured: dict[str, results.Row], peers: list[results.Row], up: str, elsewhere: Collection[str] = ()) -> list[str]:
    """One for each part, folded but for the ladder itself; `up` leads from the page to the root."""
    parts: dict[str, list[rungs.Rung]] = {}
    for rung in rungs.known():
        parts.setdefault(rung.part, []).append(rung)
    lines = []
    for part, members in parts.items():
        rates = [measured[rung.name].tflops for rung in members if rung.name in measured]
        span = f", {min(rates):.1f} to {max(rates):.1f} TFLOPS" if rates else ""
        name = (members[0].part_title or part).partition(":")[0] if part else TOP
        lines += [f"<details{'' if part else ' open'}><summary><b>{name}</b>{span}</summary>", ""]
        if part:
            lines += [f"[What this part is about, and what a hurried reader takes of it]({up}{part}/README.md).", ""]
        lines += ["| rung | x FA2 | TFLOPS | gain | idea |", "|---|---:|---:|---|---|"] if measured else ["| rung | idea |", "|---|---|"]
        for rung in members:
            row = measured.get(rung.name)
            rate = ([times(row.values["vs_fa2"]), f"{row.tflops:.1f}", gain(rung, measured)] if row else
                    ["", "", "in its chapter" if rung.name in elsewhere else "not measured yet"]) if measured else []
            cells = [f"[{rung.name}]({up}{rung.directory}/README.md)", *rate, title(rung)]
            lines.append(f"| {' | '.join(cells)} |")
        lines += ["", "</details>"]
    if peers:
        others = ", ".join(f"{peer.stage} {peer.tflops:.0f}" for peer in sorted(peers, key=lambda row: row.tflops))
        lines += ["", f"Others on the same card: {others}. `fa3` and `bnhd`: a token's heads lie side by side in memory; elsewhere, and in our kernels, a head's tokens do."]
    return lines


def section(csv: Path, page: Path) -> str:
    """What stands between the markers of the whole table."""
    up = "../" if page.resolve().parent == (ROOT / "docs") else ""
    if not csv.is_file():
        return "\n".join(tables({}, [], up))
    selection = results.Selection()
    rows = results.read(csv)
    timed, peers, _ = results.select(csv, rows, selection)
    first = timed[0]
    measured = results.of_rungs(rows)
    picture = figure.path_of(csv, tflops_per_rung.NAME).relative_to(ROOT)
    dates = sorted({row.date for row in timed})
    return "\n".join([
        f"![The climb: TFLOPS of every rung on an {first.gpu}, a bar each, with other implementations below]({up}{picture})", "",
        *tables(measured, peers, up, timed_anywhere(csv.parent)), "",
        f"{first.gpu}, {' and '.join(dates)}, {selection}; rungs of models/ in bf16, not in the picture. TFLOPS: 10¹² operations of the two products per second. "
        f"x FA2: over FlashAttention-2 in PyTorch, in the same rounds. A gain is the median of paired rounds over the rung that it starts from; same: no difference was found; "
        f"at the tile before: with the tile of that rung; in its chapter: timed at another problem or on another card. Rates of two runs differ by up to {prose.spread():.0f} %, so a gain need not be the quotient of two rows. "
        f"Which rows are of one run, intervals, clocks, drivers: [docs/results]({up}docs/results/README.md#known-gaps)."])


def check_figures(csv: Path, read=results.read, figures=FIGURES) -> None:
    """Figures whose data are not there yet need not be there either."""
    for module, add_arguments in figures:
        parser = argparse.ArgumentParser()
        add_arguments(parser)
        svg = figure.path_of(csv, module.NAME)
        try:
            points = module.collect(csv, read(csv), parser.parse_args([]))
        except results.NotMeasured:
            continue
        if not figure.is_current(svg, points):
            raise Stale(f"{svg} is missing or older than {csv}; run: make plots")


def replaced(readme: Path, text: str, generated: str, begin: str = BEGIN, end: str = END) -> str:
    pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise results.ResultsError(f"{readme}: expected one line {begin} and one line {end} behind it")
    return pattern.sub(lambda _: f"{begin}\n{generated}\n{end}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=figure.RESULTS / "h200.csv",
                        help="measured results (default: docs/results/h200.csv)")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "ladder.md", help="the page of the whole table")
    parser.add_argument("--readme", type=Path, help="the page of the ten steps (default: README.md, if no other --page is given)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if something is stale")
    arguments = parser.parse_args()
    arguments.csv = arguments.csv.resolve()
    try:
        if arguments.readme is None and arguments.page == parser.get_default("page"):
            arguments.readme = ROOT / "README.md"
        wanted = [(arguments.page, section(arguments.csv, arguments.page), BEGIN, END)]
        if arguments.readme:
            wanted.append((arguments.readme, ten_steps(arguments.csv), CLIMB_BEGIN, CLIMB_END))
        for page, generated, begin, end in wanted:
            old = page.read_text(encoding="utf-8")
            new = replaced(page, old, generated, begin, end)
            if not arguments.check:
                page.write_text(new, encoding="utf-8")
            elif old != new:
                difference = difflib.unified_diff(old.splitlines(), new.splitlines(), "committed", "generated", lineterm="")
                raise Stale("\n".join([*difference, f"{page}: the table is stale; run: make plots"]))
        if arguments.check and arguments.csv.is_file():
            check_figures(arguments.csv)
            check_figures(arguments.csv.with_name(arguments.csv.stem + "_traffic.csv"), results.traffic, TRAFFIC_FIGURES)
    except Stale as stale:
        print(stale, file=sys.stderr)
        return 1
    except (results.ResultsError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
