"""Device memory that a stage holds while it runs, over N: on a linear scale and on a logarithmic one."""
from __future__ import annotations

from pathlib import Path

from tools import results
from tools.plots import figure, over_n, traffic

render, table, heights = over_n.render, over_n.table, over_n.heights
NAME, CSV, read = "memory-over-n", traffic.FILE, results.traffic
METRIC = "cuda.memory_used_bytes"
PAGE = 1  # MiB per head: the card counts in pages of 2 MiB, and two heads run at a time


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    measured = traffic.measured_over_n(csv, rows, (METRIC,))
    mib = {stage: {n: value / 2**20 for n, value in points.items()} for stage, points in measured.items()}
    panel = {"y": f"MiB per head, {METRIC}", "of": "", "lines": over_n.merged(mib, PAGE), "table": over_n.separate(mib)}
    return {"title": f"{traffic.card(rows)}, d = 128, two heads at a time. Rungs within 10 %, or one page of 2 MiB, share a line.",
            "panels": [{**panel, "title": "linear", "log_n": False, "log_y": False},
                       {**panel, "title": "logarithmic", "log_n": True, "log_y": True}]}
