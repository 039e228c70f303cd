"""Reads the measured results in docs/results/*.csv and refuses what cannot be true. Columns: docs/results/README.md."""
from __future__ import annotations

import argparse
import functools
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import rungs
from tools.paths import ROOT

# The one list of rules; a test holds csv.cpp to it, and lab_csv.js reads it too.
SCHEMA = ROOT / "docs" / "results" / "schema.json"


@dataclass(frozen=True)
class Format:
    """The rules of one kind of file: a section of schema.json."""

    columns: list[str]
    types: dict[str, str]  # word, integer, number or flag
    required: list[str]
    added_later: list[str]  # columns that older files lack
    flags: dict[str, bool]
    allowed: dict[str, list[str]]
    identity: list[str]  # no two rows agree in all of these
    ordered: list[list[str]]  # an interval holds its value
    limits: list[dict]  # a column, `above`, `at_least` or `at_most` of what, and why
    ceilings: list[dict]  # which stages of kind ceiling bind whom
    filled_where: dict[str, dict]  # a column with something in it where another has one word, and nowhere else


@functools.cache
def schema() -> dict[str, dict]:
    return json.loads(SCHEMA.read_text(encoding="utf-8"))


def form(name: str) -> Format:
    section = {name: value for name, value in schema()[name].items() if name not in ("headline", "sweep_tokens")}
    types = {column["name"]: column["type"] for column in section.pop("columns")}
    return Format(list(types), types, **{"filled_where": {}, **section})


RESULTS = form("results")
HEADLINE: dict[str, int] = schema()["results"]["headline"]  # the shape of figures and tables
SWEEP_TOKENS: int = schema()["results"]["sweep_tokens"]  # batch times N, over N
CELL = re.compile(r'(?:"((?:[^"]|"")*)"|([^",]*))(?=,|$)')
INTEGER = re.compile(r"[+-]?[0-9]+")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")  # not nan, inf or 1_000, which float() takes


class ResultsError(Exception):
    """What is wrong with a results file, and where: `FILE:LINE: what`."""


class NotMeasured(ResultsError):
    """Nothing is wrong, but the rows are not there yet."""


@dataclass(frozen=True)
class Row:
    """One line of a results file. Empty numbers are None."""

    line: int
    values: dict

    def __getattr__(self, name: str):
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def is_rung(self) -> bool:
        """A stage in its default configuration; an ablation is named like 02_swizzle[64x32, 2 warps]."""
        return self.kind == "stage" and "[" not in self.stage

    @property
    def is_plain(self) -> bool:
        """N(0, 1) inputs in fp16: what figures and tables show. A file may hold other inputs at the same shape."""
        return self.inputs in ("", "normal") and self.dtype in ("", "fp16")


def spoken(regime: str) -> str:
    return "in turns" if regime == "turns" else regime


@dataclass(frozen=True)
class Selection:
    """Which rows belong into one figure or table."""

    batch: int = HEADLINE["batch"]
    heads: int = HEADLINE["heads"]
    n: int = HEADLINE["n"]
    d: int = HEADLINE["d"]
    causal: bool = False
    regime: str = "turns"
    inputs: str = "normal"

    def __str__(self) -> str:
        kind = "causal" if self.causal else "dense"
        inputs = "" if self.inputs == "normal" else f", {self.inputs} inputs"
        return f"batch {self.batch}, heads {self.heads}, N = {self.n}, d = {self.d}, {kind}, {spoken(self.regime)}{inputs}"

    def takes(self, row: Row) -> bool:
        shape = (row.batch, row.heads, row.n, row.d, row.causal)
        taken = row.is_plain if self.inputs == "normal" else row.inputs == self.inputs
        return taken and row.regime == self.regime and shape == (self.batch, self.heads, self.n, self.d, self.causal)


def read(path: Path, form: Format = RESULTS) -> list[Row]:
    """The rows of a file of measurements, but for those of rungs that the ladder no longer has. Raises ResultsError for
    a file that is broken or holds impossible figures."""
    try:
        data = path.read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ResultsError(f"{path}:{line}: not a text file in UTF-8") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        if "\0" in line:
            raise ResultsError(f"{path}:{number}: a NUL character; this is no text")
    header = _cells(f"{path}:1", lines[0])
    _check_header(path, header, form)
    rows = []
    for number, line in enumerate(lines[1:], 2):
        if line:
            where = f"{path}:{number}"
            rows.append(_row(where, number, header, _cells(where, line), form))
    if not rows:
        raise ResultsError(f"{path}: a header and no rows")
    _check_duplicates(path, rows, form)
    _check_ceilings(path, rows, form)
    return of_the_ladder(path, rows)


_notes: list[str] = []


def _note(words: str) -> None:
    if words not in _notes:
        _notes.append(words)


def tell() -> None:
    """On stderr, what was left out of the files that were read."""
    while _notes:
        print(_notes.pop(0), file=sys.stderr)


def of_the_ladder(path: Path, rows: list[Row]) -> list[Row]:
    """Without the rows of rungs that are not there (any more), and without the ratios over another rung than the one
    that a rung starts from now; tell() says so."""
    known = rungs.by_name()
    gone = {name for row in rows if row.values.get("kind", "stage") == "stage" and (name := rungs.split(row.stage)[0]) not in known}
    if gone:
        _note(f"{path}: left out, for the ladder has no such rung: {', '.join(sorted(gone))}")
    kept = [row for row in rows if rungs.split(row.stage)[0] not in gone]

    def is_over_another(row: Row) -> bool:
        name = rungs.split(row.stage)[0]
        return bool(row.values.get("previous")) and name in known and rungs.split(row.previous)[0] != known[name].previous

    if other := sorted({rungs.split(row.stage)[0] for row in kept if is_over_another(row)}):
        _note(f"{path}: measured against another rung than they start from now, so without vs_previous: rows of {', '.join(other)}")
    without = {"previous": "", "verdict": "", **dict.fromkeys(("vs_previous", "vs_previous_lo", "vs_previous_hi"))}
    return [Row(row.line, {**row.values, **without}) if is_over_another(row) else row for row in kept]


def _cells(where: str, line: str) -> list[str]:
    """RFC 4180, but no cell runs over the end of its line."""
    cells, at = [], 0
    while at <= len(line):
        cell = CELL.match(line, at)
        if not cell:
            raise ResultsError(f"{where}: a quote that is not closed, or stands within a cell")
        cells.append(cell[2] if cell[1] is None else cell[1].replace('""', '"'))
        at = cell.end() + 1
    return cells


def _check_header(path: Path, header: list[str], form: Format) -> None:
    missing = [name for name in form.columns if name not in header and name not in form.added_later]
    unknown = [name for name in header if name not in form.columns]
    if missing:
        raise ResultsError(f"{path}:1: no column {', '.join(missing)}; the columns are {','.join(form.columns)}")
    if unknown or len(header) != len(set(header)):
        raise ResultsError(f"{path}:1: unknown or repeated column {', '.join(unknown) or 'names'}")


def _row(where: str, line: int, header: list[str], cells: list[str], form: Format) -> Row:
    if len(cells) != len(header):
        raise ResultsError(f"{where}: {len(cells)} fields, but the header has {len(header)}")
    absent = {name: "" for name in form.added_later if name not in header}
    row = Row(line, absent | {name: _value(where, name, cell.strip(), form) for name, cell in zip(header, cells)})
    for name in form.required:
        if row.values[name] in (None, ""):
            raise ResultsError(f"{where}: no {name}")
    for low, middle, high in form.ordered:
        known = [value for value in (row.values[low], row.values[middle], row.values[high]) if value is not None]
        if known != sorted(known):
            figures = ", ".join(f"{value:g}" for value in known)
            raise ResultsError(f"{where}: {low} <= {middle} <= {high} does not hold: {figures}")
    for limit in form.limits:
        value = row.values[limit["column"]]
        holds = value is None or (value > limit.get("above", -math.inf) and limit.get("at_least", -math.inf) <= value
                                  <= limit.get("at_most", math.inf))
        if not holds:
            raise ResultsError(f"{where}: {limit['column']} is {value:g}; {limit['why']}")
    for name, only in form.filled_where.items():
        if (row.values[only["column"]] == only["is"]) != bool(row.values[name]):
            raise ResultsError(f"{where}: {only['column']} is '{row.values[only['column']]}' and {name} '{row.values[name]}'; {only['why']}")
    return row


def _value(where: str, name: str, cell: str, form: Format):
    if name in form.allowed and cell not in form.allowed[name]:
        expected = ", ".join(filter(None, form.allowed[name]))
        raise ResultsError(f"{where}: {name} is '{cell}'; expected one of {expected}")
    if form.types[name] == "word":
        return cell
    if cell == "":
        return None
    if form.types[name] == "flag":
        if cell not in form.flags:
            raise ResultsError(f"{where}: {name} is '{cell}'; expected 0 or 1")
        return form.flags[cell]
    whole = form.types[name] == "integer"
    if not (INTEGER if whole else NUMBER).fullmatch(cell):
        raise ResultsError(f"{where}: {name} is '{cell}', which is not {'an integer' if whole else 'a number'}")
    value = int(cell) if whole else float(cell)
    if not math.isfinite(value):
        raise ResultsError(f"{where}: {name} is '{cell}'; expected a finite number")
    return value


def _check_duplicates(path: Path, rows: list[Row], form: Format) -> None:
    seen: dict = {}
    for row in rows:
        key = tuple(row.values[name] for name in form.identity)
        if key in seen:
            raise ResultsError(f"{path}:{row.line}: repeats line {seen[key]}: {row.stage}, the same measurement")
        seen[key] = row.line


def bounds(ceiling: Row, row: Row, form: Format = RESULTS) -> bool:
    """The rule about ceilings, as docs/results/README.md states it."""
    rule = next((rule for rule in form.ceilings if rule["stage"] == ceiling.stage), None)
    if rule is None or ceiling.kind != "ceiling" or ceiling.gpu != row.gpu:
        return False
    return "column" not in rule or row.values[rule["column"]] is not None or 0 < (row.sm or 0) < rule["before_sm"]


def _check_ceilings(path: Path, rows: list[Row], form: Format) -> None:
    """A rate above what the card's tensor cores can do is a fault of the measurement, not a record."""
    ceilings = [row for row in rows if form.ceilings and row.kind == "ceiling"]
    for row in rows if ceilings else []:
        highest = max((ceiling.tflops for ceiling in ceilings if bounds(ceiling, row, form)), default=math.inf)
        if row.kind != "ceiling" and row.source == "measured" and row.tflops > highest:
            raise ResultsError(
                f"{path}:{row.line}: {row.stage} claims {row.tflops:g} TFLOPS, above this card's ceiling of {highest:g}"
            )


def select(path: Path, rows: list[Row], selection: Selection) -> tuple[list[Row], list[Row], list[Row]]:
    """The rungs, peers and ceilings of one shape and regime, rungs in order. Raises ResultsError if no rung is
    there."""
    measured = [row for row in rows if row.source == "measured"]
    found = sorted((row for row in measured if row.is_rung and selection.takes(row)), key=lambda row: rungs.position(row.stage))
    if not found:
        known = sorted({(row.batch, row.heads, row.n, row.d, row.regime) for row in measured if row.is_rung})
        listed = "; ".join(f"batch {b}, heads {h}, N = {n}, d = {d}, {spoken(regime)}" for b, h, n, d, regime in known)
        raise ResultsError(f"{path}: no stage was measured at {selection}. It has: {listed or 'no stage at all'}")
    peers = [row for row in measured if row.kind == "peer" and selection.takes(row)]
    ceilings = [row for row in measured if row.kind == "ceiling" and selection.takes(row)]
    return found, peers, ceilings


def add_selection_arguments(parser: argparse.ArgumentParser) -> None:
    default = Selection()
    parser.add_argument("--batch", type=int, default=default.batch, help="batch size (default: %(default)s)")
    parser.add_argument("--heads", type=int, default=default.heads, help="heads (default: %(default)s)")
    parser.add_argument("--n", type=int, default=default.n, help="sequence length (default: %(default)s)")
    parser.add_argument("--d", type=int, default=default.d, help="head dimension (default: %(default)s)")
    parser.add_argument("--causal", action="store_true", help="causal attention instead of dense")
    parser.add_argument("--regime", choices=sorted(RESULTS.allowed["regime"]), default=default.regime,
                        help="how it was timed (default: %(default)s)")


def selection_from(arguments: argparse.Namespace) -> Selection:
    return Selection(arguments.batch, arguments.heads, arguments.n, arguments.d, arguments.causal, arguments.regime)
