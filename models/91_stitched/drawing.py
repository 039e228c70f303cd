"""A warpgroup's way over the seam between two tiles of queries, in 56 and in 91. The order is the kernels', lengths are invented."""
from tools.site.sketch import FULL, Sketch

QK, PV, WEIGHTS, OUT = 5.0, 5.0, 6.0, 4.0


def in_a_row(parts: list[tuple[float, str, str]], at: float = 0.0) -> list[tuple]:
    bars = []
    for length, kind, words in parts:
        if words:
            bars.append((at, at + length, kind, words))
        at += length
    return bars


ROWS = [("56", in_a_row([(PV, "work", "PV"), (QK, "work", "QK"), (WEIGHTS, "", ""), (QK, "work", "QK"), (PV, "work", "PV")])),
        ("", in_a_row([(PV, "", ""), (OUT, "copy", "O"), (QK - OUT, "", ""), (WEIGHTS, "data", "weights")])),
        ("91", in_a_row([(QK, "work", "QK"), (PV, "work", "PV"), (WEIGHTS - PV, "", ""), (QK, "work", "QK"), (PV, "work", "PV")])),
        ("", in_a_row([(QK, "", ""), (WEIGHTS, "data", "weights"), (OUT, "copy", "O")]))]
DRAWING = Sketch("From the last weights of one tile of queries to the first of the next, in 56 and in 91",
                 "56: the last PV; then the next QK, and O goes out; then weights, and no product; then QK and PV. 91: the next QK, the last PV, and weights beside that; then QK, beside which O goes out, and PV. The lengths are invented.")
DRAWING.text(2, 12, "One warpgroup: products, and what it does beside them.", "label")
y = DRAWING.timeline(20, ROWS, 30, FULL - 2, 26)
DRAWING.text(2, y + 12, "The first PV is of the last queries, all else of", "label")
DRAWING.text(2, y + 26, "the next ones. The lengths are invented.", "label")
