"""Milliseconds per head over N, for every rung and peer of the sweep (batch x N constant, so that the GPU is always
full)."""
from __future__ import annotations

from pathlib import Path

from tools import results, rungs
from tools.plots import figure, over_n

render, table, heights = over_n.render, over_n.table, over_n.heights
NAME = "time-over-n"
TOKENS = results.SWEEP_TOKENS


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    ours: dict[str, dict[int, float]] = {}
    peers: dict[str, dict[int, float]] = {}
    drawn: dict[str, list[results.Row]] = {}
    for row in sorted(rows, key=lambda row: (*rungs.position(row.stage), row.n)):
        if ((row.is_rung or row.kind == "peer") and row.source == "measured" and row.batch * row.n == TOKENS and row.d == results.HEADLINE["d"]
                and not row.causal and row.is_plain and row.regime == "turns" and row.ms_median is not None):
            lines = ours if row.is_rung else peers
            drawn.setdefault(row.stage, []).append(row)
            lines.setdefault(row.stage, {})[row.n] = float(f"{row.ms_median / (row.batch * row.heads):.4g}")
    if not ours:
        raise results.NotMeasured(f"{csv}: no sweep with batch x N = {TOKENS}, in turns. Measured by: ladder bench --sweep")
    gpu = next(row.gpu for row in rows if row.stage in ours)
    runs = figure.Runs(sum(drawn.values(), []))
    of = {name: runs.of(*rows) for name, rows in drawn.items()}
    others = [[f"{name} {of[name]}".rstrip(), "peer", list(map(list, points.items()))] for name, points in peers.items()]
    panel = {"y": "milliseconds per head", "of": "", "title": "", "log_n": True, "log_y": True,
             "lines": over_n.merged(ours, of=of) + others, "table": over_n.separate(ours, of) + others}
    return {"title": f"{gpu}, batch x N = {TOKENS}, d = {results.HEADLINE['d']}, dense, in turns. "
                     "Rungs within 10 % share a line. Dotted, hollow: others", "runs": runs.said, "panels": [panel]}
