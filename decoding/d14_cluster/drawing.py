"""Shares that are joined by a second launch, or in shared memory."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Shares through the card's memory and a second launch, or into the neighbour's shared memory",
                 "Left, d06: four blocks write parts of four rows to a workspace, and a second launch reads them. Right, d14: each block joins one row, and the others store their part of it in that block's shared memory.")
DRAWING.text(4, 14, "d06", "label")
for block in range(4):
    DRAWING.box(4 + 38 * block, 22, 34, 24, "work", f"{block}")
    DRAWING.box(4 + 38 * block, 62, 34, 24, "data", "parts")
DRAWING.box(4, 102, 148, 24, "waste", "a second launch")
DRAWING.box(4, 142, 148, 22, "data", "O")
DRAWING.text(200, 14, "d14", "label")
for block in range(4):
    DRAWING.box(200 + 38 * block, 22, 34, 24, "work", f"{block}")
    DRAWING.box(200 + 38 * block, 62, 34, 24, "work", f"row {block}")
    DRAWING.box(200 + 38 * block, 142, 34, 22, "data", "O")
DRAWING.text(200, 108, "each stores in all of them", "label")
