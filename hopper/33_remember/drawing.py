"""What one warp does where scores are extreme, for two tiles of queries of four tiles of keys each."""
from tools.site.sketch import FULL, Sketch

MAX, EXP, PAUSE = 1, 3, 1.5  # lengths: to look for the largest scores, to make weights, and between two tiles of queries; invented
LEFT = 30


def queries(careful: bool, at: float) -> tuple[list[tuple], float]:
    bars = []
    for tile in range(4):
        looks = tile == 0 or careful or tile > 1
        for length, kind, words in (((MAX, "data", ""), (EXP, "work", f"w{tile}")) if looks else ((EXP, "waste", f"w{tile}"), (MAX, "data", ""), (EXP, "work", f"w{tile}"))):
            bars.append((at, at + length, kind, words))
            at += length
    return bars, at


def warp(remembers: bool) -> tuple[list[tuple], float]:
    first, at = queries(False, 0)
    second, at = queries(remembers, at + PAUSE)
    return first + second, at


DRAWING = Sketch("Two tiles of queries of one warp, with extreme scores: before, a tile of weights is made twice for each; now for the first alone",
                 "32: for the first tile of queries the weights of tile 1 are made, are too large, and are made again; tiles 2 and 3 are looked at first. For the next queries the same happens. 33: the warp is careful from "
                 "the start with its next queries, and makes no weights twice. All lengths are invented.")
DRAWING.text(LEFT, 12, "some queries", "label")
until = warp(False)[1]
middle = LEFT + (FULL - 2 - LEFT) * (queries(False, 0)[1] + PAUSE) / until
DRAWING.text(middle, 12, "the next ones", "label")
y = DRAWING.timeline(20, [("32", warp(False)[0]), ("33", warp(True)[0])], LEFT, FULL - 2, until)
DRAWING.text(2, y + 12, "w: weights, hatched: thrown away. Narrow: maxima.", "label")
DRAWING.text(2, y + 26, "The order is the kernels', the lengths are invented.", "label")
