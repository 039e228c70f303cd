"""One warpgroup between two tiles of queries. Only the order is the kernels'; the lengths are invented."""
from tools.site.sketch import FULL, Sketch

PV, STORE, DRAIN, QK, SOFTMAX = 3.0, 2.0, 3.0, 3.0, 4.0
LEFT = 92


def row(*parts: tuple[float, float, str, str]) -> list[tuple]:
    return [(begin, begin + length, kind, words) for begin, length, kind, words in parts]


stored = PV + STORE
waits, runs = stored + DRAIN, stored
before = {"warps": row((0, PV, "empty", ""), (PV, STORE, "work", "store"), (stored, DRAIN, "waste", ""), (waits, QK, "empty", ""), (waits + QK, SOFTMAX, "work", "softmax")),
          "products": row((0, PV, "data", "last PV"), (waits, QK, "data", "first QK")),
          "copy engine": row((stored, DRAIN, "copy", "reads O"))}
after = {"warps": row((0, PV, "empty", ""), (PV, STORE, "work", "store"), (runs, QK, "empty", ""), (runs + QK, SOFTMAX, "work", "softmax")),
         "products": row((0, PV, "data", "last PV"), (runs, QK, "data", "first QK")),
         "copy engine": row((stored, DRAIN, "copy", "reads O"))}
UNTIL = waits + QK + SOFTMAX

DRAWING = Sketch("A warpgroup between two tiles of queries: it waits until the copy engine has read O, or multiplies meanwhile",
                 "31: after the last PV the warps store O in shared memory and wait, hatched, until the copy engine has read it; then the first QK of the next queries begins, and its softmax after that. 32: the first QK "
                 "begins when O has been stored, and runs while the engine reads O; the softmax comes earlier by as much as 31 has waited. The lengths are invented.")
DRAWING.text(2, 12, "31: O has to leave first", "name")
y = DRAWING.timeline(20, list(before.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "32: the next queries lie in the other Q, so QK begins", "name")
y = DRAWING.timeline(y + 22, list(after.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "Hatched: the warps wait for the engine, and nothing", "label")
DRAWING.text(2, y + 24, "of theirs runs. The order is the kernels', the lengths", "label")
DRAWING.text(2, y + 38, "are invented. White: the warps wait for a product.", "label")
