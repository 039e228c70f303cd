"""Bytes and events of docs/results/GPU_traffic.csv over N."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs

FILE = "h200_traffic.csv"
HOW = "make profile OUT=docs/results/" + FILE

def over_n(rows: list[results.Row], metrics: tuple[str, ...], causal: bool = False, d: int = 128) -> dict[str, dict[int, float]]:
    """stage -> N -> the sum of these metrics, per head. An N at which one is missing is left out."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in rows:
        if row.metric in metrics and (row.causal, row.d) == (causal, d):
            found.setdefault(row.stage, {}).setdefault(row.n, {})[row.metric] = row.per_head
    sums = {stage: {n: sum(values.values()) for n, values in sorted(lengths.items()) if len(values) == len(metrics)}
            for stage, lengths in sorted(found.items(), key=lambda item: rungs.position(item[0]))}
    return {stage: lengths for stage, lengths in sums.items() if lengths}


def measured_over_n(path: Path, rows: list[results.Row], metrics: tuple[str, ...], **shape) -> dict[str, dict[int, float]]:
    found = over_n([row for row in rows if row.source == "measured"], metrics, **shape)
    if not found:
        raise results.NotMeasured(f"{path}: no {' + '.join(metrics)} yet. It is measured on a GPU:  {HOW}")
    return found


def card(rows: list[results.Row]) -> str:
    return ", ".join(sorted({row.gpu for row in rows if row.source == "measured"}))
