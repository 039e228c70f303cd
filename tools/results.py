"""Reads the files of docs/results, the one place in Python that does, and refuses what cannot be true. Columns: docs/results/README.md."""
from __future__ import annotations

import csv
import functools
import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tools import rungs
from tools.paths import DOCS

RESULTS = DOCS / "results"
DECODING, FUNCTIONS = "h200_decoding.csv", "h200_functions.csv"
APART = {DECODING: ("attention", "of one query"), FUNCTIONS: ("rung", "of functions of a score")}  # files of rungs that h200.csv has no rows of: the column that names them
SCHEMA: dict = json.loads((RESULTS / "schema.json").read_text(encoding="utf-8"))  # the one list of rules
HEADLINE: dict[str, int] = SCHEMA["headline"]  # the shape of figures and tables
SWEEP_TOKENS: int = SCHEMA["sweep_tokens"]  # batch times N, over N
FLAGS = {"0": False, "1": True, "false": False, "true": True}
NUMBERS = {"integer": int, "number": float}


def timed_apart() -> dict[str, tuple[str, str]]:
    """By rung that such a file has rows of: the file, and what they are of. `d17_nibbles int4` and `d06_pages pages=64` are of d17 and d06."""
    return {row[column].partition(" ")[0]: (file, what) for file, (column, what) in APART.items() if (RESULTS / file).exists() for row in table(file)}


def columns(kind: str) -> list[str]:
    return list(SCHEMA[kind]["properties"])


def words(column: str, kind: str = "results") -> list[str]:
    """Those that a column may hold."""
    return [word for word in SCHEMA[kind]["properties"][column]["enum"] if word]


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
    def per_head(self) -> float:
        """Of traffic: the value itself where it is a share, a rate or a mean, which are the same for one head as for all."""
        is_count = not re.search(r"\.(pct|ratio|avg|sum\.)", self.metric)
        return self.value / (self.batch * self.heads) if is_count else self.value

    @property
    def is_plain(self) -> bool:
        """N(0, 1) inputs in fp16, and nothing but the shape: what figures and tables show. A file may hold other problems of the same shape."""
        return self.inputs in ("", "normal") and self.dtype in ("", "fp16") and not self.problem


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
    dtype: str = "fp16"
    problem: str = ""

    def __str__(self) -> str:
        kind = "causal" if self.causal else "dense"
        rest = [self.dtype] * (self.dtype != "fp16") + [self.problem] * bool(self.problem) + [f"{self.inputs} inputs"] * (self.inputs != "normal")
        return ", ".join([f"batch {self.batch}, heads {self.heads}, N = {self.n}, d = {self.d}, {kind}, {spoken(self.regime)}", *rest])

    def takes(self, row: Row) -> bool:
        said = f"b={row.batch} h={row.heads} n={row.n} d={row.d} {row.dtype}{' causal' if row.causal else ''}"  # by the columns
        problem = "" if row.problem == said else row.problem
        of_row = (row.batch, row.heads, row.n, row.d, row.causal, row.regime, row.inputs or "normal", row.dtype or "fp16", problem)
        return of_row == (self.batch, self.heads, self.n, self.d, self.causal, self.regime, self.inputs, self.dtype, self.problem)


def _typed(cell: str, rule: dict):
    """A cell as its column's rule wants it; as it stands where that does not go, which the rule will refuse."""
    types = rule.get("type", "string")
    if types == "string":
        return cell
    if cell == "":
        return None
    if types == "boolean":
        return FLAGS.get(cell, cell)
    try:
        value = NUMBERS[types if isinstance(types, str) else types[0]](cell)
    except ValueError:
        return cell
    return value if math.isfinite(value) and "_" not in cell else cell


def rows(path: Path, kind: str = "results") -> list[Row]:
    """As a file has them, whatever they say. Raises ResultsError for what is no table of these columns."""
    rules, where = SCHEMA[kind], f"{path}:1"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if missing := [name for name in rules["required"] if name not in header]:
                raise ResultsError(f"{where}: no column {', '.join(missing)}; the columns are {','.join(columns(kind))}")
            if unknown := [name for i, name in enumerate(header) if name not in rules["properties"] or name in header[:i]]:
                raise ResultsError(f"{where}: unknown or repeated column {', '.join(unknown)}")
            absent = {name: None if "null" in rule.get("type", "") else "" for name, rule in rules["properties"].items() if name not in header}
            found, of = [], [rules["properties"][name] for name in header]
            for cells in filter(None, reader):
                where = f"{path}:{reader.line_num}"
                if len(cells) != len(header):
                    raise ResultsError(f"{where}: {len(cells)} fields, but the header has {len(header)}")
                found.append(Row(reader.line_num, absent | {name: _typed(cell.strip(), rule) for name, cell, rule in zip(header, cells, of)}))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ResultsError(f"{path}: not a text file in UTF-8") from None
    except csv.Error as error:
        raise ResultsError(f"{where}: in it or below, no table: {error}") from None
    return found


def read(path: Path, kind: str = "results") -> list[Row]:
    """The rows of a file of measurements, but for those of rungs that the ladder no longer has. Raises ResultsError for a file that is
    broken or holds impossible figures. One that has not changed is read once."""
    state = path.stat() if path.is_file() else None
    return list(_read(path, kind, state and (state.st_mtime_ns, state.st_size, state.st_ino)))


@functools.cache
def _read(path: Path, kind: str, _state: tuple | None) -> list[Row]:
    import jsonschema  # not in every Python that only reads what was checked here before

    found = rows(path, kind)
    if not found:
        raise ResultsError(f"{path}: a header and no rows")
    rules, seen = jsonschema.Draft7Validator(SCHEMA[kind]), {}
    of_column = {name: jsonschema.Draft7Validator(rule) for name, rule in SCHEMA[kind]["properties"].items()}
    of_row = jsonschema.Draft7Validator({word: rule for word, rule in SCHEMA[kind].items() if word not in ("properties", "additionalProperties")})

    @functools.lru_cache(None, typed=True)
    def holds(name: str, value: object) -> bool:
        return of_column[name].is_valid(value)

    for row in found:
        where = f"{path}:{row.line}"
        # Most cells have been seen before; which rule is broken is asked where one is.
        is_fine = all(holds(name, value) for name, value in row.values.items()) and of_row.is_valid(row.values)
        for error in () if is_fine else rules.iter_errors(row.values):
            value = f"{error.instance:g}" if isinstance(error.instance, float) else repr(error.instance)
            raise ResultsError(f"{where}: {error.path[0]} is {value}; {error.message if error.validator == 'type' else error.schema.get('description', error.message)}")
        for names in SCHEMA[kind].get("ordered", ()):
            known = [value for name in names if (value := row.values[name]) is not None]
            if known != sorted(known):
                raise ResultsError(f"{where}: {' <= '.join(names)} does not hold: {', '.join(f'{value:g}' for value in known)}")
        key = tuple(row.values[name] for name in SCHEMA[kind]["identity"])
        if key in seen:
            raise ResultsError(f"{where}: repeats line {seen[key]}: {row.stage}, the same measurement")
        seen[key] = row.line
    if "ceilings" in SCHEMA[kind]:
        _check_ceilings(path, found)
    return of_the_ladder(path, found)


@functools.cache
def recorded(name: str, kind: str = "results") -> list[Row]:
    """Of docs/results, read once."""
    return read(RESULTS / name, kind)


def traffic(path: Path) -> list[Row]:
    """Bytes and events, by stage, shape and metric. NotMeasured without a file."""
    if not path.exists():
        raise NotMeasured(f"{path} is not there yet. It is written on a GPU:  make profile OUT=docs/results/{path.name}")
    return read(path, "traffic")


def counters(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """stage -> kernel -> metric -> value, kernels in the order of the file (ncu's order, the default first)."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in read(path, "counters") if path.exists() else []:
        found.setdefault(row.stage, {}).setdefault(row.kernel, {})[row.metric] = row.value
    return found


def table(name: str | Path) -> list[dict[str, str]]:
    """A file of docs/results, or another one by its whole path, that has no rules: its cells as they stand."""
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_table(path: Path, rows: list[dict], columns: list[str] | None = None) -> None:
    """A file that `table` reads, of these columns or of the first row's."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns or list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


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


def bounds(ceiling: Row, row: Row) -> bool:
    """The rule about ceilings, as docs/results/README.md states it."""
    rule = SCHEMA["results"]["ceilings"].get(ceiling.stage)
    if rule is None or ceiling.kind != "ceiling" or (ceiling.gpu, ceiling.dtype) != (row.gpu, row.dtype):
        return False
    return "before_sm" not in rule or row.pct_ceiling is not None or 0 < (row.sm or 0) < rule["before_sm"]


def _check_ceilings(path: Path, found: list[Row]) -> None:
    """A rate above what the card's tensor cores can do is a fault of the measurement, not a record."""
    ceilings = [row for row in found if row.kind == "ceiling" and row.stage in SCHEMA["results"]["ceilings"]]
    for row in found:
        if row.kind == "ceiling" or row.source != "measured":
            continue
        highest = max((ceiling.tflops for ceiling in ceilings if bounds(ceiling, row)), default=math.inf)
        if row.tflops > highest:
            raise ResultsError(f"{path}:{row.line}: {row.stage} claims {row.tflops:g} TFLOPS, above this card's ceiling of {highest:g}")


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


def of_rungs(rows: list[Row]) -> dict[str, Row]:
    """The plain row of each rung and of its variants, in the type that the rung takes."""
    types = {rung.name: rung.default.dtype for rung in rungs.known()}
    return {row.stage: row for row in rows if row.is_rung and row.source == "measured"
            and Selection(dtype=types.get(row.stage.partition("[")[0], "fp16")).takes(row)}
