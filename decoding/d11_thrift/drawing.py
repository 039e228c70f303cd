"""Sixteen rows, of which four are somebody's."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Two parts of a share's end: rows that are stored, and divisions",
                 "Left, the 16 rows of a warp's tile, of which the first four are queries' heads and twelve are nobody's: only the four are stored. Right, a division as a product: number times 2^32 / by, and the upper 32 bits of that.")
DRAWING.text(4, 14, "rows of a tile", "label")
for row in range(16):
    DRAWING.box(4, 22 + 9 * row, 96, 8, "work" if row < 4 else "data")
DRAWING.text(104, 42, "four are stored", "label")
DRAWING.text(104, 110, "twelve are not", "label")
DRAWING.text(200, 14, "number / by", "label")
DRAWING.box(200, 22, 130, 22, "data", "number · ⌈2³² / by⌉")
DRAWING.box(200, 60, 64, 22, "work", "quotient")
DRAWING.box(266, 60, 64, 22, "data", "rest")
DRAWING.text(200, 98, "upper half, lower half", "label")
