"""Shares that a second launch joins, or the last block of them."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Blocks that leave parts and count themselves, and the last one joins",
                 "Left, d06: four blocks leave parts, the launch ends, and a second one reads them. Right, d18: each block adds to a count behind a fence; the fourth finds three before it, and joins.")
DRAWING.text(4, 14, "d06", "label")
for block, end in enumerate((70, 84, 62, 92)):
    DRAWING.box(4, 22 + 26 * block, end, 20, "work", f"{block}")
DRAWING.box(104, 22, 26, 98, "waste", "ends")
DRAWING.box(134, 22, 40, 98, "work", "join")
DRAWING.text(210, 14, "d18", "label")
for block, (end, count) in enumerate(((70, 2), (84, 3), (62, 1), (92, 4))):
    DRAWING.box(210, 22 + 26 * block, end, 20, "work", f"{block}")
    DRAWING.box(210 + end + 2, 22 + 26 * block, 18, 20, "data", f"{count}")
DRAWING.box(326, 100, 40, 20, "work", "join")
