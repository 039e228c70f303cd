import math

from tools.site.sketch import Sketch

SUM_LIMIT, F16_END = 30000, 65504  # the first is the kernel's
LOW, HIGH = 0, 18
DRAWING = Sketch("What a tile's softmax does in 25 and in 26, and what the sum of its weights says: each of them fits into f16, or not surely",
                 f"25: the maximum of a lane's scores, a vote, exponentials and their sum. 26: exponentials and their sum, then a vote; if it says yes, the maximum and the exponentials again. Below, the sum of a lane's 32 "
                 f"weights of a row on a logarithmic scale: below {SUM_LIMIT} every weight is less, and f16 holds it, as it ends at {F16_END}. Above, the tile is done again, and then the sum is at most 32.")
WORK = (("max", "data", 40), ("vote", "empty", 36), ("exp, sum, pack", "work", 106))


def row(y: float, name: str, steps) -> float:
    DRAWING.text(26, y + 12, name, "", "end")
    x = 34.0
    for words, kind, wide in steps:
        DRAWING.box(x, y, wide, 16, kind, words)
        x += wide
    return x


ends = row(4, "25", WORK), row(28, "26", (WORK[2], WORK[1]))
DRAWING.text(ends[1] + 6, 40, "no: done", "label")
DRAWING.arrow(158, 46, 158, 60)
row(62, "yes", (WORK[0], WORK[2]))
DRAWING.text(34, 94, "The order is the kernels', the lengths are invented.", "label")

DRAWING.text(2, 124, "A lane's sum of 32 weights of a row", "name")
at = DRAWING.number_line(178, LOW, HIGH, ((0, "1"), (5, "32"), (10, "1024"), (math.log2(F16_END), f"{F16_END}")))
limit = at(math.log2(SUM_LIMIT))
DRAWING.box(at(LOW), 160, limit - at(LOW), 14, "data", f"below {SUM_LIMIT}: kept")
DRAWING.box(limit, 160, at(HIGH) - limit, 14, "waste", "again")
for value, words in ((20, "20"), (3000, "3000"), (80000, "80000")):
    x = at(math.log2(value))
    wide = 7 * len(words) + 4
    DRAWING.box(x - wide / 2, 136, wide, 16, "work", words, value > SUM_LIMIT)
    DRAWING.line(x, 152, x, 160)
DRAWING.line(at(16), 204, at(16), 212)
DRAWING.line(at(16), 212, at(4.9), 212)
DRAWING.arrow(at(4.9), 212, at(4.9), 200)
DRAWING.text(at(5) + 8, 226, "against the new row_max: at most 32", "label")
