"""ALiBi's line over tiles of keys, and the ramp that every tile has of it: 55."""
from tools.site.sketch import Sketch

DRAWING = Sketch("The line over the tiles of keys, in the order in which they come: the query's own first, then down. In each tile it is a number and the same ramp",
                 "Four tiles of keys side by side, the query's own key at the right end of the last. A line rises over them from left to right. Under the tiles stands the order in which they come: fourth, third, second, first. In each tile the line is a constant step and a ramp, the same in all four. Below, a tile of K with 128 columns and beside it 16 more, which hold the ramp.")
X, WIDE, TOP, RISE = 12, 82, 14, 21
for tile in range(4):
    left, low = X + WIDE * tile, TOP + RISE * (4 - tile)
    DRAWING.line(left, low, left + WIDE, low - RISE)
    DRAWING.line(left, low, left + WIDE, low, "thin")
    DRAWING.box(left, 112, WIDE - 4, 26, "work" if tile == 3 else "data", ("fourth", "third", "second", "first")[tile])
DRAWING.text(4, 26, "what ALiBi leaves of a score", "label")
DRAWING.text(X + WIDE * 4 - 4, 154, "the query's own key", "label", "end")
DRAWING.arrow(X + WIDE * 4 - 130, 150, X + WIDE, 150)
DRAWING.box(X, 176, 240, 34, "data", "K: 128 columns, 8 slices")
DRAWING.box(X + 244, 176, 84, 34, "copy", "0 to 127")
DRAWING.text(X + 244, 226, "a ninth slice", "label")
