"""Bytes per head over N, from DRAM and from L2, with the IO model beside them."""
from __future__ import annotations

from pathlib import Path

from tools import results
from tools.plots import figure, over_n, traffic

render, table, heights = over_n.render, over_n.table, over_n.heights
NAME, CSV, read = "bytes-over-n", traffic.FILE, results.traffic
LEVELS = (("DRAM, read and written", ("dram__bytes_read.sum", "dram__bytes_write.sum")), ("L2", ("lts__t_bytes.sum",)))
D = results.HEADLINE["d"]


def model(n: int, query_tile: int | None) -> float:
    """harness/problem/formula.cpp, dense, in bytes per head; without a tile the scores are kept in memory."""
    return 8 * n * D + 4 * n**2 if query_tile is None else 4 * n * D + 4 * n**2 * D / query_tile


def formula(query_tile: int | None) -> str:
    if query_tile is None:
        return "8nd + 4n²"
    return "4nd + 4n²d" + (f"/{query_tile}" if query_tile > 1 else "")


def tiles(rows: list[results.Row]) -> list[int | None]:
    """Rows of queries in a tile of each stage's, out of the model's bytes; None where scores are kept in memory."""
    found = set()
    for row in rows:
        if row.metric != "model.io_bytes" or row.causal or row.d != D:
            continue
        tile = None if row.per_head == model(row.n, None) else round(4 * row.n**2 * D / (row.per_head - 4 * row.n * D))
        if row.per_head != model(row.n, tile):
            raise results.ResultsError(f"{row.stage}: {row.per_head:g} model.io_bytes at N = {row.n} are those of no tile")
        found.add(tile)
    return sorted(found, key=lambda tile: (tile is not None, tile))


def collect(csv: Path, rows: list[results.Row]) -> figure.Points:
    panels = []
    for level, metrics in LEVELS:
        measured = traffic.measured_over_n(csv, rows, metrics)
        lengths = sorted({n for points in measured.values() for n in points})
        models = [[formula(tile), "model", [[n, model(n, tile)] for n in lengths]] for tile in tiles(rows)]
        what = f"{level}: {' + '.join(metrics)}"
        panels.append({"y": "bytes per head", "of": what, "title": what, "log_n": True, "log_y": True,
                       "lines": over_n.merged(measured) + models, "table": over_n.separate(measured) + models})
    return {"title": f"{traffic.card(rows)}, d = {D}, dense. Grey: the IO model. Rungs within 10 % share a line.", "panels": panels}
