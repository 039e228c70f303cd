"""Blocks of a page that are made of the code or of what was measured, and stand in it as plain Markdown, so that a code host shows them:

    <!-- region 02_swizzle chunk_offset -->
    ```cpp
    ```
    <!-- /region -->

Of each block the first line says which and of what; `chapters.py` renews what stands between. The site shows some of them in its own way.
"""
from __future__ import annotations

import csv
import importlib
import re
import shlex
import textwrap

from tools import changes, results, rungs
from tools.evidence import first_rows, row_kernels
from tools.kernel_parts import LAUNCH, PARTS, function_lines, part_lines
from tools.paths import DOCS, ROOT
from tools.plots import figure, which
from tools.site import prose
from tools.site.api import api

CORE = 10  # lines of a change that a chapter shows
COMBINATIONS = DOCS / "combinations.csv"  # python/tests/combinations_tests.py makes it


def table(head: list[str], rows: list[list[str]], align: str = "") -> str:
    """`align` has a letter for each column, l or r."""
    ends = ["---:" if letter == "r" else "---" for letter in align.ljust(len(head), "l")[:len(head)]]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |\n" for row in ([head, *rows])).replace(
        " |\n", f" |\n| {' | '.join(ends)} |\n", 1)


# ---- code ------------------------------------------------------------------------------------------------------------

def region_lines(where: str, name: str) -> list[range]:
    """A part of a kernel or of another file of code, by its mark or by the name of a function."""
    text = code_of(where).read_text(encoding="utf-8").splitlines()
    is_mark = name in (*PARTS, LAUNCH)
    found = part_lines(text, name) if is_mark else function_lines(text, name)
    if not found:
        raise results.ResultsError(f"{code_of(where).relative_to(rungs.root())} has no {'mark // ' if is_mark else 'function '}{name}")
    return found


def code_of(where: str):
    """A rung's kernel, or a file by its path."""
    return ROOT / where if "/" in where and (ROOT / where).is_file() else rungs.named(where).kernel


def region(where: str, name: str) -> str:
    text = code_of(where).read_text(encoding="utf-8").splitlines()
    pieces = [textwrap.dedent("".join(f"{text[n - 1]}\n" for n in lines)) for lines in region_lines(where, name)]
    return "```cpp\n" + "\n// ...\n\n".join(pieces) + "```\n"


def diff(name: str, words: str = "") -> str:
    """The core of what a rung changed: of the hunks the longest, comments left out; or the longest with these words, and where it is long from the line that has them on."""
    rung = rungs.named(name)
    before = rungs.by_name()[rung.previous]
    old, new = (each.kernel.read_text(encoding="utf-8").splitlines() for each in (before, rung))

    def lines(hunk: tuple[range, range]) -> list[tuple[str, str]]:
        both = [(sign, text[n - 1]) for sign, text, numbers in (("-", old, hunk[0]), ("+", new, hunk[1])) for n in numbers]
        return [(sign, line) for sign, line in both if line.strip() and not line.lstrip().startswith("//")]

    found = [piece for piece in map(lines, changes.hunks(before, rung)) if any(words in line for _, line in piece)]
    if not found:
        raise results.ResultsError(f"diff {name}: no changed line has the words '{words}'")
    core = max(found, key=len)
    first = next(at for at, (_, line) in enumerate(core) if words in line) if len(core) > CORE else 0
    shown = core[first:first + CORE]
    margin = min((len(line) - len(line.lstrip()) for _, line in shown), default=0)
    said = [f"{sign} {line[margin:]}" for sign, line in shown]
    if more := len(core) - len(shown):
        said.append(f"  ... {more} line{'s' if more > 1 else ''} more")
    return "```diff\n" + "".join(f"{line}\n" for line in said) + "```\n"


# ---- tables ----------------------------------------------------------------------------------------------------------

def file(path: str) -> str:
    """A CSV file as it stands."""
    with (ROOT / path).open(encoding="utf-8", newline="") as text:
        head, *rows = csv.reader(text, strict=True)
    if not rows or any(len(row) != len(head) for row in rows):
        raise results.ResultsError(f"{path}: not every row has the {len(head)} cells of the first")
    return table(head, rows)


def plot(name: str) -> str:
    """A figure of docs/figures, for a page of docs/, and the same as tables."""
    module = importlib.import_module(f"tools.plots.{name}")
    path = results.RESULTS / getattr(module, "CSV", "h200.csv")
    try:
        points = figure.points_of(module, path)
    except results.NotMeasured:
        return "This figure is not measured yet.\n"
    tables = [f"{caption}\n\n{table(head, body, 'l' + 'r' * len(head))}" for caption, head, body in module.table(points)]
    return (f"![{points['title']}](figures/{figure.path_of(path, module.NAME).name})\n\n"
            f"<details><summary>The same as a table</summary>\n\n{chr(10).join(tables)}\n</details>\n")


# ---- what was recorded ------------------------------------------------------------------------------------------------

def few(names: set[str]) -> str:
    """Rungs by their numbers, neighbours drawn together: 20 to 31, 34. f04 and p01 are none: each letter counts by itself."""
    known = sorted(rung.name for rung in rungs.known())
    runs: list[list[str]] = []
    for at, name in enumerate(known):
        if name in names:
            if runs and known[at - 1] == runs[-1][-1] and name[0].isalpha() * name[0] == known[at - 1][0].isalpha() * known[at - 1][0]:
                runs[-1].append(name)
            else:
                runs.append([name])
    spoken = [run[0].partition("_")[0] if len(run) == 1 else f"{run[0].partition('_')[0]}, {run[1].partition('_')[0]}" if len(run) == 2
              else f"{run[0].partition('_')[0]} to {run[-1].partition('_')[0]}" for run in runs]
    return ", ".join(spoken)


def kind_of(row: results.Row) -> str:
    """What a row is of, in a word or two."""
    words_of = [row.problem.partition(" ")[0] if row.problem and not row.problem.startswith("b=") else "", "causal" if row.causal else "",
                *(word.partition("=")[0] for word in row.problem.split() if word.partition("=")[0] in ("window", "softcap", "alibi", "sink", "kv", "lens_q", "nq")),
                "" if row.inputs in ("", "normal") else row.inputs.replace("_", " "), "" if row.regime == "turns" else row.regime]
    spoken = {"kv": "grouped", "lens_q": "lengths", "nq": "fewer queries"}
    return " ".join(spoken.get(word, word) for word in dict.fromkeys(words_of) if word) or "dense"


def coverage() -> str:
    """Which rungs have rows of a kind, on each card."""
    found: dict[str, dict[str, set[str]]] = {}
    for card in ("h200", "h100"):
        for row in results.recorded(f"{card}.csv"):
            if row.kind == "stage":
                at_headline = (row.batch, row.heads, row.n) == tuple(results.HEADLINE[name] for name in ("batch", "heads", "n")) and row.d == results.HEADLINE["d"]
                kind = ("headline shape, " if at_headline else "other shapes, ") + kind_of(row)
                found.setdefault(kind, {}).setdefault(card, set()).add(rungs.split(row.stage)[0])
    order = sorted(found, key=lambda kind: (not kind.startswith("headline"), kind))
    return table(["what", "on an H200", "on an H100"], [[kind, *(few(found[kind].get(card, set())) for card in ("h200", "h100"))] for kind in order])


def kernels() -> str:
    """How the kernels of each rung's rows stand to today's."""
    told = row_kernels.told()
    of: dict[str, list[dict[str, str]]] = {}
    for row in results.table(row_kernels.STANDS.name):
        of.setdefault(row["stage"], []).append(row)
    rows = []
    for rung in rungs.known():
        members = of.get(rung.name, [])
        same = [row for row in members if row["how"] in (row_kernels.SAME_TEXT, row_kernels.SAME_CODE) or told.get((row["stage"], row["commit"]), {}).get("of") == "none"]
        other = [row for row in members if row not in same]
        if members:
            said = [f"same machine code, timed at {', '.join(row['commit'] for row in same)}"] if same else []
            for row in other:
                change = told.get((row["stage"], row["commit"]), {"of": "all", "what": row["how"]})
                said.append(f"**other at {row['commit']}**, {change['of']} of {row['rows']}: {change['what']}")
            rows.append([f"[{rung.name}](../../{rung.directory}/README.md)", str(sum(int(row["rows"]) for row in members)), "; ".join(said)])
    return table(["rung", "rows", "its kernel today"], rows, "lrl")


def runs() -> str:
    """Every run that a row is of: when, with how many rows, and what FlashAttention-2 read in it at the headline shape."""
    rows = []
    for card in ("h200", "h100"):
        of: dict[tuple[str, str], list[results.Row]] = {}
        for row in results.recorded(f"{card}.csv"):
            of.setdefault((row.date, row.commit), []).append(row)
        for (date, commit), members in sorted(of.items()):
            rates = prose.rates_of("fa2", results.Selection(), commit, card)
            rows.append([f"`{commit}`", date, card.upper(), " and ".join(f"{rate:.0f}" for rate in rates), str(len(members)),
                         few({rungs.split(row.stage)[0] for row in members if row.kind == "stage"}) or ", ".join(sorted({row.stage for row in members}))])
    return table(["run, by its commit", "on", "card", "`fa2`", "rows", "rungs"], rows, "lllrr")


# ---- whose attention is fastest --------------------------------------------------------------------------------------

def races(card: str, kind: str, dtype: str) -> str:
    """A table of CARD_peers.csv: who ran each problem how fast, and the fastest library's time over flash_ladder's."""
    unit = "TB/s" if kind == "generating" else "TFLOPS"
    names = [("flash_ladder", "flash_ladder"), *which.NAMES.items()]
    rows = []
    for problem, race in which.races(results.table(f"{card}_peers.csv")).items():
        if which.kind_of(problem) != kind or dtype not in problem.split():
            continue
        best, ours = which.best(race), race.get("flash_ladder")
        digits = 1 if kind == "generating" else 0
        rates = [f"{float(race[name]['rate']):.{digits}f}" if name in race else "" for name, _ in names]
        over = f"{float(best['over']):.3g} [{float(best['over_lo']):.3g}, {float(best['over_hi']):.3g}]" if best else "no rung takes it"
        rows.append([which.said(problem), ours["rung"] if ours else "", *rates, over])
    return table(["problem", "rung", f"{unit} of flash_ladder", *(name for name, _ in (spoken[::-1] for spoken in names[1:])), "over the best of them"], rows, "llrrrrr")


# ---- what the package takes ------------------------------------------------------------------------------------------

def combinations(kind: str) -> str:
    """A table of docs/combinations.csv, for a page of docs/: who takes what at each d; and of what nobody takes the fewest words that nobody takes together."""
    types = {"bf16": "", "fp16": "f16: "}
    of: dict[str, list[dict[str, str]]] = {}
    for row in results.table(COMBINATIONS):
        if row["kind"] == kind:
            of.setdefault(row["what"], []).append(row)
    if not of:
        raise results.ResultsError(f"{COMBINATIONS.name} has no rows of that kind")

    def cell(row: dict[str, str]) -> str:
        names = [row[element] for element in types] if row["bf16"] != row["fp16"] else [row["bf16"]]
        links = [f"[{name.partition('_')[0]}](../{rungs.named(name).directory}/README.md)" if name else "–" for name in names]
        return ", ".join(said + link for said, link in zip(types.values(), links))

    lacking: dict[str, dict[str, dict[str, None]]] = {}  # by words and type each d, once
    for row in (row for rows in of.values() for row in rows):
        for element in types:
            if words := row[f"{element}_lacks"]:
                lacking.setdefault(words, {}).setdefault(element, {})[row["d"]] = None
    shown = table(["", *(f"d = {row['d']}" for row in next(iter(of.values())))], [[what, *map(cell, rows)] for what, rows in of.items()])
    for words, by_type in lacking.items():
        lists = {element: ", ".join(sorted(those, key=int)) for element, those in by_type.items()}
        alike = len(lists) == len(types) and len({*lists.values()}) == 1
        shown += f"\n- *{words}*: d = " + ("; ".join(f"{those} in {element.replace('fp', 'f')}" for element, those in lists.items()) if not alike else lists["bf16"])
    return shown + "\n" * bool(lacking)


def cells(card: str, *words: str) -> str:
    """A table of CARD_grid_peers.csv: by inputs and mask, for each length the fastest library's time over flash_ladder's, bold below 1.02."""
    found: dict[tuple[str, str], dict[int, str]] = {}
    wanted, unwanted = [word for word in words if word[0] != "-"], {word[1:] for word in words if word[0] == "-"}
    for (problem, inputs), row in which.cells(results.table(f"{card}_grid_peers.csv"), " ".join(wanted)).items():
        if unwanted & set(problem.split()):
            continue
        n = int(next(word for word in problem.split() if word.startswith("n="))[2:])
        over = f"{float(row['over']):.2f}"
        row_of = found.setdefault((inputs.replace("_", " "), "causal" if "causal" in problem.split() else "dense"), {})
        if n in row_of:
            raise results.ResultsError(f"{card}_grid_peers.csv has two problems with {' '.join(words)} at n = {n}, {inputs}: say more words")
        row_of[n] = f"**{over}**" if float(over) < 1.02 else over
    lengths = sorted({n for its in found.values() for n in its})
    return table(["inputs", "mask", *(f"n = {n}" for n in lengths)], [[*of, *(its.get(n, "") for n in lengths)] for of, its in found.items()], "ll" + "r" * len(lengths))


# ---- predictions -----------------------------------------------------------------------------------------------------

VERDICTS = {"hit": "hit", "missed": "**missed**", "vague": "too vague to miss", "none": "no prediction", "": "not judged yet"}


def committed(name: str) -> str:
    """The words in which a rung's prediction was committed, for a chapter that tells it in later ones."""
    row = first_rows.listed()[name]
    where = f"`{row['predicted']}`"
    return ("<details><summary>As it was committed, before it was timed</summary>\n\n"
            f"> {rungs.named(name).prediction}\n\n"
            f"So it stands in {where}. The words above are later ones: what they say beyond this was no prediction.\n\n</details>\n")


def came(half: dict[str, str], over: str = "") -> str:
    """What came of a half first, and of the row that stands, where that says something else; empty if nothing has. `over` has been said."""
    if not half["came"]:
        return ""
    form, _, unit = half["form"].partition(" ")
    now = prose.value(half["formula"])  # None: the row that stands was timed without the other
    of = half["of"].removeprefix(over).lstrip(", ") or ("dense" if over and half["of"] else half["of"])
    first = format(float(half["came"]), form)
    lasting = now is None or first_rows.within(half) == first_rows.within(half | {"came": f"{now:.4f}"})
    return f"{of}{': ' if of else ''}{first}{f' {unit}' if unit else ''}{'' if lasting else f' (the row that stands: {now:{form}})'}"


def all_came(halves: list[dict[str, str]]) -> str:
    """Of all halves; what several of them are over is said once."""
    said, over = [], ""
    for half in halves:
        said.append(came(half, over))
        over = over or (re.match(r"(?:over [^,]+)?", half["of"])[0] if half["came"] else "")
    return "; ".join(filter(None, said))


def predictions() -> str:
    """All predictions, for docs/: what was said, and what came of each half in the first run that timed it."""
    halves = results.table(first_rows.HALVES)
    rows = []
    for name, row in first_rows.listed().items():
        rung = rungs.named(name)
        verdict = ", ".join(filter(None, (VERDICTS[row["verdict"]], row["way"], "after a trial" if row["trial"] and row["verdict"] != "none" else "")))
        mine = [half for half in halves if half["stage"] == name]
        decisive = first_rows.decisive(mine)
        ordered = sorted(mine, key=lambda half: half is not decisive)
        rows.append([f"[{name}](../{rung.directory}/README.md)", row["said"], all_came(ordered),
                     f"{verdict}. {row['note']}" if row["note"] else verdict, *(f"`{row[column][:8]}`" if row[column] else "" for column in ("predicted", "measured"))])
    return table(["rung", "predicted", "what came first", "", "predicted in", "first row in"], rows)


BLOCKS = {"api": api, "committed": committed, "predictions": predictions, "coverage": coverage, "kernels": kernels, "runs": runs, "races": races, "cells": cells, "combinations": combinations, "plot": plot, "region": region, "diff": diff, "csv": file}
BLOCK = re.compile(rf"^<!-- ({'|'.join(BLOCKS)})((?: [^\n]*)?) -->\n(.*?)^<!-- /\1 -->$", re.M | re.S)


def renewed(text: str, where: str) -> str:
    """A page with all that is made in it made anew: blocks, tables, numbers."""
    def made(match: re.Match) -> str:
        try:
            return f"<!-- {match[1]}{match[2]} -->\n{BLOCKS[match[1]](*shlex.split(match[2]))}<!-- /{match[1]} -->"
        except (OSError, TypeError, csv.Error, results.ResultsError, rungs.RungsError) as error:
            raise results.ResultsError(f"{where}: {match[1]}{match[2]}: {error}") from None

    return prose.renewed(BLOCK.sub(made, text), where)
