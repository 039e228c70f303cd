from tools.site.sketch import FULL, Sketch

MAX, EXP = 1, 3  # lengths: to look for the largest scores, and to make weights, add them up and pack them; invented
DRAWING = Sketch("Two ways to do a tile, look afterwards or look first, and what four tiles cost whose scores grow by much each time",
                 "Look afterwards: weights, their sum, and a vote; if a sum is too large the largest score is looked for and the weights are made again. Look first, when careful: the largest score, a vote, row_max raised if "
                 "need be, then weights, once. Where scores grow in every tile, 26 makes the weights of each tile after the first twice. 27 makes those of tile 1 twice, is careful from then on, and makes the others once. "
                 "All lengths are invented.")


def way(y: float, name: str, steps) -> None:
    DRAWING.text(2, y + 12, name, "name")
    x = 2.0
    for i, (words, kind, wide) in enumerate(steps):
        DRAWING.box(x, y + 20, wide, 18, kind, words)
        x += wide + 24
        if i < len(steps) - 1:
            DRAWING.arrow(x - 23, y + 29, x - 1, y + 29)


WEIGHTS, LARGEST = ("weights", "work", 62), ("max", "data", 34)
way(0, "At first: look afterwards", (WEIGHTS, ("sum >= 30000 ?", "empty", 104), LARGEST, ("again", "work", 62)))
way(48, "Careful: look first", (LARGEST, ("grown > 8 ?", "empty", 88), ("raise row_max", "data", 96), WEIGHTS))
DRAWING.text(2, 104, "no, above: done. no, below: row_max stays.", "label")


def tiles(careful: bool) -> list[tuple]:
    bars, at = [], 0
    for tile in range(4):
        looks = tile == 0 or careful and tile > 1
        for length, kind, words in (((MAX, "data", ""), (EXP, "work", f"w{tile}")) if looks else ((EXP, "waste", f"w{tile}"), (MAX, "data", ""), (EXP, "work", f"w{tile}"))):
            bars.append((at, at + length, kind, words))
            at += length
    return bars


DRAWING.text(2, 132, "Scores that grow by much in every tile", "name")
until = tiles(False)[-1][1]
y = DRAWING.timeline(140, [("26", tiles(False)), ("27", tiles(True))], 30, FULL - 2, until)
DRAWING.text(2, y + 12, "w: weights, hatched: thrown away. Narrow: maxima.", "label")
DRAWING.text(2, y + 26, "The order is the kernels', the lengths are invented.", "label")
