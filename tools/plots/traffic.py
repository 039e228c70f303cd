"""Reads docs/results/GPU_traffic.csv, written by tools/evidence/traffic.py. Columns: docs/results/README.md."""
from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tools import results, rungs

FILE = "h200_traffic.csv"
HOW = "make profile OUT=docs/results/" + FILE
TRAFFIC = results.form("traffic")


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
        """The value itself where it is a share, a rate or a mean: these are the same for one head as for all."""
        is_count = not re.search(r"\.(pct|ratio|avg|sum\.)", self.metric)
        return self.value / (self.batch * self.heads) if is_count else self.value


def read(path: Path) -> list[Row]:
    """All rows; NotMeasured without a file, ResultsError for one that is broken or holds what cannot be."""
    if not path.exists():
        raise results.NotMeasured(f"{path} is not there yet. It is written on a GPU:  {HOW}")
    return [Row(**{name: row.values[name] for name in Row.__annotations__}) for row in results.read(path, TRAFFIC)]


def over_n(rows: list[Row], metrics: tuple[str, ...], causal: bool = False, d: int = 128) -> dict[str, dict[int, float]]:
    """stage -> N -> the sum of these metrics, per head. An N at which one is missing is left out."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row.metric in metrics and (row.causal, row.d) == (causal, d):
            found.setdefault(row.stage, {}).setdefault(row.n, {})[row.metric] = row.per_head
    sums = {stage: {n: sum(values.values()) for n, values in sorted(lengths.items()) if len(values) == len(metrics)}
            for stage, lengths in sorted(found.items(), key=lambda item: rungs.position(item[0]))}
    return {stage: lengths for stage, lengths in sums.items() if lengths}


def measured_over_n(path: Path, rows: list[Row], metrics: tuple[str, ...], **shape) -> dict[str, dict[int, float]]:
    found = over_n([row for row in rows if row.source == "measured"], metrics, **shape)
    if not found:
        raise results.NotMeasured(f"{path}: no {' + '.join(metrics)} yet. It is measured on a GPU:  {HOW}")
    return found


def card(rows: list[Row]) -> str:
    return ", ".join(sorted({row.gpu for row in rows if row.source == "measured"}))
