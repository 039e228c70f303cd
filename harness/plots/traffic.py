"""Reads docs/results/GPU_traffic.csv, written by harness/evidence/traffic.py. Columns: docs/results/README.md."""
from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

import results

FILE = "h200_traffic.csv"
COLUMNS = "stage,gpu,batch,heads,n,d,causal,metric,value,source,commit,date".split(",")
SOURCES = ("measured", "emulator", "model")
HOW = "make profile OUT=docs/results/" + FILE


@dataclass(frozen=True)
class Row:
    stage: str
    gpu: str
    batch: int
    heads: int
    n: int
    d: int
    causal: bool
    metric: str
    value: float
    source: str

    @property
    def per_head(self) -> float:
        return self.value / (self.batch * self.heads)


def read(path: Path) -> list[Row]:
    """All rows; NotMeasured without a file, ResultsError for one that is broken."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file, strict=True)
            if next(reader, []) != COLUMNS:
                raise results.ResultsError(f"{path}:1: the columns are not {','.join(COLUMNS)}")
            rows: dict[tuple, Row] = {}
            for cells in reader:
                where = f"{path}:{reader.line_num}"
                if len(cells) != len(COLUMNS):
                    raise results.ResultsError(f"{where}: {len(cells)} cells, but the header has {len(COLUMNS)}")
                row = _row(where, dict(zip(COLUMNS, cells)))
                key = (row.stage, row.gpu, row.batch, row.heads, row.n, row.d, row.causal, row.metric, row.source)
                if key in rows:
                    raise results.ResultsError(f"{where}: repeats {row.metric} of {row.stage} at the same shape")
                rows[key] = row
    except FileNotFoundError:
        raise results.NotMeasured(f"{path} is not there yet. It is written on a GPU:  {HOW}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise results.ResultsError(f"{path}: {error}") from None
    return list(rows.values())


def _row(where: str, cells: dict) -> Row:
    try:
        sizes = {name: int(cells[name]) for name in ("batch", "heads", "n", "d")}
        row = Row(stage=cells["stage"], gpu=cells["gpu"], **sizes, causal={"0": False, "1": True}[cells["causal"]],
                  metric=cells["metric"], value=float(cells["value"]), source=cells["source"])
    except (KeyError, ValueError, TypeError) as error:
        raise results.ResultsError(f"{where}: not a row of traffic: {error!r}") from None
    if not math.isfinite(row.value) or row.value < 0 or min(sizes.values()) < 1:
        raise results.ResultsError(f"{where}: {row.metric} is {row.value:g} at {sizes}; nothing counted is below 0")
    if row.source not in SOURCES or (row.source == "measured") != bool(row.gpu):
        raise results.ResultsError(f"{where}: source is '{row.source}' and gpu '{row.gpu}'; a GPU stands in measured rows alone")
    return row


def over_n(rows: list[Row], metrics: tuple[str, ...], causal: bool = False, d: int = 128) -> dict[str, dict[int, float]]:
    """stage -> N -> the sum of these metrics, per head. An N at which one is missing is left out."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row.metric in metrics and (row.causal, row.d) == (causal, d):
            found.setdefault(row.stage, {}).setdefault(row.n, {})[row.metric] = row.per_head
    sums = {stage: {n: sum(values.values()) for n, values in sorted(lengths.items()) if len(values) == len(metrics)}
            for stage, lengths in sorted(found.items())}
    return {stage: lengths for stage, lengths in sums.items() if lengths}


def measured_over_n(path: Path, rows: list[Row], metrics: tuple[str, ...], **shape) -> dict[str, dict[int, float]]:
    found = over_n([row for row in rows if row.source == "measured"], metrics, **shape)
    if not found:
        raise results.NotMeasured(f"{path}: no {' + '.join(metrics)} yet. It is measured on a GPU:  {HOW}")
    return found


def card(rows: list[Row]) -> str:
    return ", ".join(sorted({row.gpu for row in rows if row.source == "measured"}))
