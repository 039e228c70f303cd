"""Writes what is measured in every chapter (the README.md of a rung) from docs/results: the block with this rung beside
the one that it starts from, and the numbers of the prose (prose.py). The page of a part, the README.md of its folder,
has such prose too.

With --check nothing is written: exits 1 when a chapter is older than its data.
"""
from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tools import results, rungs
from tools.paths import DOCS, ROOT
from tools.site import blocks, generated

BEGIN, END = "<!-- measured:begin -->", "<!-- measured:end -->"
CSV = DOCS / "results" / "h200.csv"
OTHER_CARDS = ("h100.csv",)  # whose numbers stand in the prose
STALLS = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"

# What the hardware counted: label, metric, how to write it. See tools/evidence/counters.py.
COUNTERS = (
    ("tensor cores active", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "{:.1f} %"),
    ("shared-memory pipe busy", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed", "{:.1f} %"),
    ("shared-memory wavefronts, millions", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "{:.1f}"),
    ("L2 bytes, GB", "lts__t_bytes.sum", "{:.2f}"),
    ("warp instructions, millions", "smsp__inst_executed.sum", "{:.1f}"),
    ("waiting for global memory, clocks per instruction", STALLS.format("long_scoreboard"), "{:.2f}"),
    ("waiting for shared memory, clocks per instruction", STALLS.format("short_scoreboard"), "{:.2f}"),
    ("waiting for a `wgmma`, clocks per instruction", STALLS.format("gmma"), "{:.2f}"),
    ("waiting at barriers, clocks per instruction", STALLS.format("barrier"), "{:.2f}"),
    ("`HMMA` in the machine code", "sass.HMMA", "{:.0f}"),
    ("`HGMMA` in the machine code", "sass.HGMMA", "{:.0f}"),
    ("`FMNMX` (maximum) in the machine code", "sass.FMNMX", "{:.0f}"),
    ("`LDSM` (ldmatrix) in the machine code", "sass.LDSM", "{:.0f}"),
    ("`FMUL` + `FADD` + `FFMA` in the machine code", ("sass.FMUL", "sass.FADD", "sass.FFMA"), "{:.0f}"),
    ("`MOV` + `IMAD` in the machine code", ("sass.MOV", "sass.IMAD"), "{:.0f}"),
)
SHOWN = 3  # counters beside the rates: those that moved most, if by a twentieth at least
SCALE = {"wavefronts": 1e6, "inst_executed": 1e6, "lts__t_bytes": 1e9}


def interval(row: results.Row, name: str) -> str:
    middle, low, high = (row.values[name + end] for end in ("", "_lo", "_hi"))
    return "" if middle is None else f"{middle:.3f} [{low:.3f}, {high:.3f}]"


def timing_lines(rows: list[results.Row]) -> list[tuple[str, list[str]]]:
    """Label and one cell per column; `rows` holds (in turns, burst, causal, alone) of each column."""
    def cells(pick, regime: int) -> list[str]:
        return [pick(pair[regime]) if pair[regime] else "" for pair in rows]

    def rates(regime: int, form: Callable[[results.Row], str] = lambda row: f"{row.tflops:.1f}") -> list[str]:
        """TFLOPS or milliseconds; those of another run than this rung's are left to its own chapter: rates of two runs differ."""
        mine = rows[-1][regime]
        return cells(lambda row: "" if mine and row.commit != mine.commit else form(row), regime)

    def milliseconds(row: results.Row) -> str:
        return f"{row.ms_median:.2f}"

    def against(row: results.Row) -> str:  # what another rung gained is that rung's story
        return f"{interval(row, 'vs_previous')} {row.verdict}".strip() if any(row is mine for mine in rows[-1]) else ""

    lines = [("TFLOPS, in turns", rates(0)),
             ("TFLOPS, alone", rates(3)),
             ("TFLOPS, burst", rates(1)),
             ("TFLOPS, causal, in turns", rates(2)),
             ("milliseconds, dense", rates(0, milliseconds) if any(row[2] for row in rows) else []),
             ("milliseconds, causal", rates(2, milliseconds)),
             ("against the rung before, in turns", cells(against, 0)),
             ("against the rung before, alone", cells(against, 3)),
             ("against the rung before, burst", cells(against, 1)),
             ("against FA2 in PyTorch, in turns", cells(lambda row: interval(row, "vs_fa2"), 0)),
             ("percent of the ceiling of `mma.sync`, or of `wgmma` where it is used", 
              cells(lambda row: "" if row.pct_ceiling is None else f"{row.pct_ceiling:.1f} %", 0)),
             ("registers, spilled bytes", cells(lambda row: f"{row.registers}, {row.spill_bytes}", 0))]
    return [line for line in lines if any(line[1])]


def notes(before: list[results.Row | None], mine: list[results.Row | None]) -> str:
    """What a reader might take for an error: a paired ratio beside rates of two runs or heats, and a verdict that seems to go against
    its interval."""
    paired = [(old, new) for old, new in zip(before, mine) if old and new and old is not new and new.vs_previous]
    said = ""
    if any(old.commit != new.commit for old, new in paired):
        said = " Blank: that rate comes from another run, and rates of two runs do not compare. For the ratio both kernels ran in the same rounds."
    elif any(old.values.get("heat") != new.values.get("heat") for old, new in paired):
        said = " The two rates come from different rounds of one run. For the ratio both kernels ran in the same rounds."
    if any(row.verdict == "same" and not row.values["vs_previous_lo"] <= 1 <= row.values["vs_previous_hi"] for _, row in paired):
        said += " *Same* stands even where the interval leaves out 1, if so small a gain, or one among so many, may be chance."
    return said


def counter_lines(columns: list[dict[str, float] | None]) -> list[tuple[str, list[str]]]:
    lines = []
    for label, metric, form in COUNTERS:
        names = metric if isinstance(metric, tuple) else (metric,)
        divisor = next((scale for part, scale in SCALE.items() if part in names[0] and "pct" not in names[0]), 1.0)
        cells = [form.format(sum(column[name] for name in names) / divisor) if column and names[0] in column else ""
                 for column in columns]
        if any(cell.strip("0. %") for cell in cells):  # what neither of them has or does says nothing
            lines.append((label, cells))
    return lines


def moved(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """The labels of the counters that moved most, in the order of the table. Next to nothing has not moved, whatever
    its ratio."""
    def change(metric) -> float:
        names = metric if isinstance(metric, tuple) else (metric,)
        if any(name not in counters for name in names for counters in (before, now)):
            return 0.0
        nothing = 0.2 if "stalled" in names[0] else 2.0 if "pct" in names[0] else 1e-3
        old, new = (sum(counters[name] for name in names) + nothing for counters in (before, now))
        return abs(math.log(new / old))

    # What ran says more than what the compiler wrote, which also changes with the tile.
    changed = [counter for counter in COUNTERS if change(counter[1]) > math.log(1.05)]
    most = sorted(changed, key=lambda counter: ("sass" in str(counter[1]), -change(counter[1])))[:SHOWN]
    return [counter[0] for counter in COUNTERS if counter in most]


def at_the_tile_before(rung: rungs.Rung, rows: list[results.Row]) -> list[tuple[str, str]]:
    """Where the default tile is another than that of the rung before, the gain of the idea alone: both at the same
    tile."""
    before = rungs.by_name().get(rung.previous)
    if before is None or before.default.label == rung.default.label:
        return []
    same = [row for row in rows if row.stage == f"{rung.name}[{before.default.label}]" and results.Selection().takes(row) and row.vs_previous]
    return [(f"the same, both at {before.default.label}", f"{interval(row, 'vs_previous')} {row.verdict}".strip()) for row in same]


def earlier(rung: rungs.Rung) -> list[str]:
    """The rung that it starts from, the one that this starts from, and so on to the first."""
    known, found = rungs.by_name(), []
    while (rung := known.get(rung.previous)) and rung.name not in found:
        found.append(rung.name)
    return found


def selection_of(rung: rungs.Rung, rows: list[results.Row]):
    """Which rows its chapter shows, with a regime or a mask: those at the README's shape; of another formula than the forward pass, whose
    problems stand as words in the rows, those at the shape of its first row."""
    first = next((row for row in rows if row.stage == rung.name and row.problem and not row.problem.startswith("b=")), None)
    if first is None:
        return functools.partial(results.Selection, dtype=rung.default.dtype)

    def of(causal: bool = False, regime: str = "turns") -> results.Selection:
        words = first.problem.removesuffix(" causal") + (" causal" if causal else "")
        return results.Selection(first.batch, first.heads, first.n, first.d, causal, regime, dtype=rung.default.dtype, problem=words)
    return of


def block(rung: rungs.Rung, rows: list[results.Row], counters: dict) -> str:
    """What stands between the markers of one chapter: the rung beside the nearest one below it that was measured."""
    stage = rung.name

    def link(name: str) -> str:
        return f"[{name}]({os.path.relpath(CSV.with_name(name), rung.path)})"

    of = selection_of(rung, rows)

    def at(name: str) -> list[results.Row | None]:
        return [next((row for row in rows if row.stage == name and selection.takes(row) and row.source == "measured"), None)
                for selection in (of(), of(regime="burst"), of(causal=True), of(regime="alone"))]

    def default_kernel(name: str | None) -> dict[str, float] | None:
        # "flash_attention<64, 128, 4>"; of a rung of several functions none is the default.
        kernels = counters.get(name, {})
        return next(iter(kernels.values())) if len({kernel.partition("<")[0] for kernel in kernels}) == 1 else None

    mine = at(stage)
    best = next((regime for regime, row in enumerate(mine) if row), 0)  # in turns, dense, if it has that
    before = next((name for name in earlier(rung) if any(old and new for old, new in zip(at(name), mine))), None)
    names = [before, stage] if before else [stage]
    pairs = [at(name) for name in names]
    first = mine[best]
    if first is None:
        if any(row.stage == stage and row.source == "measured" for row in rows):
            return f"No table here: its rows in {link(CSV.name)} are of other problems than such a table shows."
        for other in filter(lambda name: CSV.with_name(name).exists(), OTHER_CARDS):
            if any(row.stage == stage for row in results.recorded(other)):
                return f"Not timed on the H200 that these tables are of. What follows is of another card: {link(other)}."
        if stage in (apart := results.timed_apart()):
            return f"No table here: its figures are {apart[stage][1]}, in {link(apart[stage][0])}, and stand below."
        return f"Not measured yet: {link(CSV.name)} has no row of this rung."
    lines = timing_lines(pairs)
    shown = {"TFLOPS, in turns", "TFLOPS, causal, in turns", "against the rung before, in turns", "against FA2 in PyTorch, in turns"}
    for label, ratio in at_the_tile_before(rung, rows):
        lines.insert([name for name, _ in lines].index("against the rung before, in turns") + 1, (label, ["", ratio]))
        shown.add(label)
    if any(default_kernel(name) for name in names):
        lines += counter_lines([default_kernel(name) for name in names])
    if all(default_kernel(name) for name in names) and before:
        shown |= set(moved(default_kernel(before), default_kernel(stage)))
    head = ["| | " + " | ".join(name + (" (this rung)" if name == stage and before else "") for name in names) + " |",
            "|---|" + "---:|" * len(names)]
    in_full = ["| " + " | ".join([label, *cells]) + " |" for label, cells in lines]
    table = [*head, *(line for line, (label, _) in zip(in_full, lines) if label in shown)]
    ablations = [row for row in rows if row.stage.startswith(stage + "[") and of().takes(row)]
    if ablations:
        same = all((row.commit, row.date) == (first.commit, first.date) for row in ablations)
        run = ", in the same run." if same else ". They were timed in another run, where all rates are a little different, so compare the last column."
        table += ["", f"Other variants{run} *Ratio*: to the same variant of the rung before, where it has one.", "",
                  "| variant | TFLOPS | ratio | against FA2 |", "|---|---:|---:|---:|"]
        if not same and first.vs_fa2 is not None:
            table += [f"| this rung, in the run above | {first.tflops:.1f} | | {interval(first, 'vs_fa2')} |"]
        table += [f"| {row.stage} | {row.tflops:.1f} | {interval(row, 'vs_previous')} | {interval(row, 'vs_fa2')} |"
                  for row in ablations]
    if len(table) < len(head) + len(lines):
        table += ["", "<details><summary>All rows</summary>", "", *head, *in_full, "", "</details>"]
    how = f"[How to read this table]({os.path.relpath(DOCS / 'measuring.md', rung.path)}#how-to-read-the-table-of-a-chapter)."
    counted = f" Counters: batch 2, N = 4096 ({link('h200_counters.csv')})." if any(default_kernel(name) for name in names) else ""
    table += ["", f"{first.gpu}, {first.date}, {of(causal=first.causal, regime=first.regime)} ({link(CSV.name)}). Ratios are medians of paired rounds.{notes(pairs[0], pairs[-1])}{counted} {how}"]
    return "\n".join(table)


def made() -> Iterator[tuple[Path, str]]:
    """The pages and what they should hold."""
    rows = results.read(CSV)
    counters = results.counters(CSV.with_name("h200_counters.csv"))
    chapters = {rung.path / "README.md": rung for rung in rungs.known()}
    for page in [*chapters, *sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *ROOT.glob("*/README.md")} - chapters.keys())]:
        text = page.read_text(encoding="utf-8")
        if page in chapters:
            text = generated.between(text, BEGIN, END, block(chapters[page], rows, counters), page)
        yield page, blocks.renewed(text, str(page.relative_to(ROOT)))


def main() -> int:
    return generated.run(generated.parser(__doc__).parse_args(), made)


if __name__ == "__main__":
    sys.exit(main())
