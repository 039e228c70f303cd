"""The seam between two tiles of queries, of one warpgroup: what stands under which product in 37 and in 38. The order is the kernels', lengths are invented."""
from tools.site.sketch import FULL, Sketch

PV, SUMS, OUT, PLACE, QK, WEIGHTS = 5.0, 2.0, 5.0, 4.0, 5.0, 6.0
BEFORE = [(PV, "work", "PV"), (SUMS, "waste", "+"), (OUT, "waste", "O out"), (PLACE, "waste", "place"), (QK, "work", "QK"), (WEIGHTS, "data", "weights")]


def in_a_row(parts: list[tuple[float, str, str]]) -> list[tuple]:
    bars, at = [], 0.0
    for length, kind, words in parts:
        bars.append((at, at + length, kind, words))
        at += length
    return bars


ROWS = [("37", in_a_row(BEFORE)),
        ("38", in_a_row([(PV, "work", "PV"), (QK, "work", "QK"), (WEIGHTS, "data", "weights")])),
        ("", [(0, SUMS, "copy", "+"), (SUMS, PV, "copy", "place"), (PV, PV + OUT, "copy", "O out")])]
DRAWING = Sketch("The seam between two tiles of queries: what stood in a row in 37 lies under two products in 38",
                 "37: the last PV, then sums, then O on its way out, then the place of the next queries, then their first QK, then weights. 38: sums and the place lie under the last PV, O's way out under the next QK. The lengths are invented.")
DRAWING.text(2, 12, "One warpgroup, from its last PV to the next weights.", "label")
y = DRAWING.timeline(20, ROWS, 30, FULL - 2, 27)
DRAWING.text(2, y + 12, "+: sums. place: which queries are next. Hatched:", "label")
DRAWING.text(2, y + 26, "no product of its own. The lengths are invented.", "label")
