"""An SM over time: one block, or two."""
from tools.site.sketch import Sketch

DRAWING = Sketch("With one block on an SM nobody reads while it begins and ends; with two the other one does",
                 "Above, one row: a hatched beginning, a long bar of reading, a hatched end, and the same again. Below, two rows, of which the second is shifted, so that at any time one of them reads.")
DRAWING.text(4, 14, "d02: one block on an SM", "label")
for at in (4, 184):
    DRAWING.box(at, 22, 30, 24, "waste")
    DRAWING.box(at + 30, 22, 114, 24, "copy", "reads")
    DRAWING.box(at + 144, 22, 24, 24, "waste")
DRAWING.text(4, 72, "d03: two", "label")
for row, shift in ((0, 0), (1, 90)):
    for at in (4, 184):
        x = at + shift
        if x + 168 > 368:
            continue
        DRAWING.box(x, 80 + row * 30, 30, 24, "waste")
        DRAWING.box(x + 30, 80 + row * 30, 114, 24, "copy", "reads")
        DRAWING.box(x + 144, 80 + row * 30, 24, 24, "waste")
