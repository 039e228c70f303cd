"""What the warps do with eight tiles of keys where key 0 is a sink, from the end and from the start. Only the order is the kernels'; the lengths are invented."""
from tools.site.sketch import FULL, Sketch

MAX, EXP, LEFT = 1.0, 3.0, 66


def warp(order: list[int], careful: bool) -> list[tuple]:
    bars, at = [], 0.0
    for place, tile in enumerate(order):
        sink_late = tile == 0 and place > 0
        parts = [(MAX, "data", "")] if place == 0 or careful else []
        if sink_late and not careful:
            parts += [(EXP, "waste", f"{tile}"), (MAX, "data", "")]
        for length, kind, words in (*parts, (EXP, "work", f"{tile}")):
            bars.append((at, at + length, kind, words))
            at += length
    return bars


UP = list(range(6))
ROWS = [("34, first", warp(UP[::-1], False)), ("34, next", warp(UP[::-1], True)), ("35, all", warp(UP, False))]
DRAWING = Sketch("A warp's tiles of keys with a sink at key 0: from the end, the sink surprises and the next queries are careful; from the start it is in the first tile",
                 "34 takes tiles 5 to 0. For its first queries the weights of tile 0 are too large, thrown away and made again after a look at the maxima; for the next queries it looks at every tile first. 35 takes tiles 0 to 5 and looks at "
                 "the first alone. The lengths are invented.")
DRAWING.text(2, 12, "Key 0 is in tile 0, and nearly every query likes it.", "label")
y = DRAWING.timeline(20, ROWS, LEFT, FULL - 2, max(bars[-1][1] for _, bars in ROWS))
DRAWING.text(2, y + 12, "Numbers: weights. Hatched: thrown away. Narrow: maxima.", "label")
DRAWING.text(2, y + 26, "The order is the kernels', the lengths are invented.", "label")
