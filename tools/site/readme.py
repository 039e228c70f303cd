"""Writes the ten steps of the README and the whole table of docs/ladder.md: titles from the chapters, ratios from docs/results. Rates
stand in neither: those of two rungs are often of two runs, and differ by more than the rungs do.

With --check nothing is written: exits 1 when the table, or a figure in docs/figures, is older than its data.
"""
from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from types import ModuleType

from tools import changes, results, rungs
from tools.paths import ROOT
from tools.plots import bytes_over_n, climb, engines, figure, halves, memory_over_n, power, regimes, roofline, tflops_per_rung, time_over_n
from tools.site import generated, prose
from tools.site.generated import between, Stale

BEGIN, END = "<!-- ladder:begin -->", "<!-- ladder:end -->"  # the whole table
CLIMB_BEGIN, CLIMB_END = "<!-- climb:begin -->", "<!-- climb:end -->"  # ten steps of it
TOP = "The ladder"  # its top level
FIGURES = (climb, tflops_per_rung, time_over_n, regimes, power, engines)
TRAFFIC_FIGURES = (bytes_over_n, memory_over_n, roofline)


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
    bounds = "" if row.vs_previous_lo is None or row.vs_previous_hi is None else f" [{(row.vs_previous_lo - 1) * 100:+.1f}, {(row.vs_previous_hi - 1) * 100:+.1f}]"
    if row.verdict == "same":
        return f"same{bounds}"
    before = rungs.find(rung.previous)
    same_tile = measured.get(f"{rung.name}[{before.variants[0].label}]") if before.variants[0].label != rung.variants[0].label else None
    if same_tile is None or same_tile.vs_previous is None:
        return f"{percent(row.vs_previous)}{bounds}"
    with_that_tile = "same" if same_tile.verdict == "same" else percent(same_tile.vs_previous)
    return f"{percent(row.vs_previous)}{bounds}; {with_that_tile} at the tile before"


def times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.3f}" if ratio < 0.1 else f"{ratio:.2f}"


def ten_steps(csv: Path) -> str:
    """What stands between the README's markers."""
    selection = results.Selection()
    steps, peers = climb.rows_of(csv, results.read(csv), selection)
    lines = ["| rung | the idea | x FlashAttention-2 |", "|---|---|---:|"]
    for row in steps:
        rung = rungs.by_name()[row.stage]
        lines.append(f"| [{rung.name}]({rung.directory}/README.md) | {climb.STEPS[row.stage]} | {times(climb.share(row, peers))} |")
    for peer in sorted(peers, key=lambda row: row.tflops):
        lines.append(f"| {climb.LIBRARIES[peer.stage]} | | {times(climb.share(peer, peers))} |")
    return "\n".join(lines)


def timed_anywhere(folder: Path) -> set[str]:
    """Rungs that a file of results has a row of, whatever the card and the problem."""
    tables_of = (path for path in sorted(folder.glob("*.csv")) if path.read_text(encoding="utf-8").partition("\n")[0].split(",") == results.columns("results"))
    return {row.stage for path in tables_of for row in results.read(path)} | results.timed_apart().keys()


def rows(members: Collection[rungs.Rung], measured: dict[str, results.Row], up: str, elsewhere: Collection[str], roles: bool) -> list[str]:
    changed = changes.since_previous()
    rate, ends = (["x FA2", "gain"], ["---:", "---"]) if measured else ([], [])
    lines = [f"| {' | '.join(['rung', *['what'] * roles, *rate, 'lines', 'idea'])} |", f"|{'|'.join(['---', *['---'] * roles, *ends, '---:', '---'])}|"]
    for rung in members:
        row = measured.get(rung.name)
        timed = ([times(row.values["vs_fa2"]), gain(rung, measured)] if row else
                 ["", "in its chapter" if rung.name in elsewhere else "not measured yet"]) if measured else []
        cells = [f"[{rung.name}]({up}{rung.directory}/README.md)", *[rung.role] * roles, *timed, str(changed[rung.name][1]) if rung.name in changed else "", title(rung)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def tables(measured: dict[str, results.Row], peers: list[results.Row], up: str, elsewhere: Collection[str] = ()) -> list[str]:
    """The line of each part, and folded what hangs under its rungs; `up` leads from the page to the root."""
    lines = []
    for part in rungs.parts():
        lines += [f"## {(part.title or part.name).partition(':')[0] if part.name else TOP}", ""]
        if part.name:
            lines += [f"[What this part is about, and what a hurried reader takes of it]({up}{part.name}/README.md).", ""]
        if line := [rung for rung in part.rungs if rung.role == "line"]:
            lines += [*rows(line, measured, up, elsewhere, False), ""]
        for above, beside in rungs.by_line():
            if here := [rung for rung in beside if rung.part == part.name]:
                lines += [f"<details><summary>Under {above.name}: {', '.join(rung.name for rung in here)}</summary>", "",
                          *rows(here, measured, up, elsewhere, True), "", "</details>", ""]
    if peers:
        fa2 = next((f", which reached {peer.tflops:.0f} TFLOPS" for peer in peers if peer.stage == "fa2"), "")
        others = ", ".join(f"{peer.stage} {times(climb.share(peer, peers))}" for peer in sorted(peers, key=lambda row: row.tflops) if peer.stage != "fa2")
        lines += [f"Others on the same card, over FlashAttention-2{fa2}: {others}. `fa3` and `bnhd`: a token's heads lie side by side in memory; elsewhere, and in our kernels, a head's tokens do.", ""]
    return lines[:-1]


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
    dates = sorted({row.date for row in (*timed, *measured.values())})
    return "\n".join([
        f"![The climb: TFLOPS of every rung on an {first.gpu}, a bar each, with other implementations below]({up}{picture})", "",
        *tables(measured, peers, up, timed_anywhere(csv.parent)), "",
        f"{first.gpu}, {' to '.join(dict.fromkeys((dates[0], dates[-1])))}, {selection}; rungs of models/ in bf16, not in the picture. "
        f"x FA2: over FlashAttention-2 in PyTorch, in the same rounds. A gain is the median of paired rounds over the rung that it starts from, with its 95 % interval; same: no difference was found; "
        f"at the tile before: with the tile of that rung; in its chapter: timed at another problem or on another card. Rates of two runs differ by up to {prose.spread():.0f} %, so none stand here. Lines: those of `kernel.cuh` that differ from the rung that it starts from, as `make diff STAGE=03` shows them. "
        f"Rates, clocks, drivers, and which rows are of one run: [docs/results]({up}docs/results/README.md#known-gaps)."])


def check_figures(csv: Path, figures: Collection[ModuleType]) -> None:
    """Figures whose data are not there yet need not be there either."""
    for module in figures:
        svg = figure.path_of(csv, module.NAME)
        try:
            points = figure.points_of(module, csv)
        except results.NotMeasured:
            continue
        if not figure.is_current(svg, points):
            raise Stale(f"{svg} is missing or older than {csv}; run: make plots")


def made(csv: Path, page: Path, readme: Path | None, check: bool) -> Iterator[tuple[Path, str]]:
    """The pages and what they should hold; Stale for a figure, which another program draws."""
    if readme:
        yield readme, between(readme.read_text(encoding="utf-8"), CLIMB_BEGIN, CLIMB_END, ten_steps(csv), readme)
    yield page, between(page.read_text(encoding="utf-8"), BEGIN, END, section(csv, page), page)
    if check and csv.is_file():
        check_figures(csv, FIGURES)
        check_figures(csv.with_name(csv.stem + "_traffic.csv"), TRAFFIC_FIGURES)
        if csv.with_name(halves.CSV).is_file():
            check_figures(csv.with_name(halves.CSV), (halves,))


def main() -> int:
    parser = generated.parser(__doc__)
    parser.add_argument("--csv", type=Path, default=figure.RESULTS / "h200.csv",
                        help="measured results (default: docs/results/h200.csv)")
    parser.add_argument("--page", type=Path, help="the page of the whole table, alone (default: docs/ladder.md, and the README)")
    arguments = parser.parse_args()
    pages = (arguments.page, None) if arguments.page else (ROOT / "docs" / "ladder.md", ROOT / "README.md")
    return generated.run(arguments, lambda: made(arguments.csv.resolve(), *pages, arguments.check))


if __name__ == "__main__":
    sys.exit(main())
