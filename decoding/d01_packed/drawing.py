"""Rows of a tile: before, each head has its own; in d01 the heads of a group share one."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A tile for each head of queries, with one row in use, or one tile for all heads that share keys",
                 "Left, four tiles, each with one row in use, and from each an arrow to the same column of keys. Right, one tile with four rows in use and one arrow to the keys.")
DRAWING.text(4, 14, "before: each head alone", "label")
for head in range(4):
    top = 24 + head * 34
    DRAWING.box(4, top, 84, 26, "waste")
    DRAWING.box(4, top, 84, 7, "work")
    DRAWING.text(94, top + 16, f"head {head}", "label")
DRAWING.box(146, 24, 40, 128, "copy", "keys")
DRAWING.text(212, 14, "d01: once for all", "label")
DRAWING.box(212, 24, 100, 52, "waste", "")
DRAWING.box(212, 24, 100, 24, "work", "heads 0 to 3")
DRAWING.box(324, 24, 40, 128, "copy", "keys")
