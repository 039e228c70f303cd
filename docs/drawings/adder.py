"""What is kept of terms beside 65536: 14 places, and what lies behind them is cut before anything is added."""
from tools.site.sketch import Sketch

KEPT, CUT, CELL, LEFT = 14, 3, 15.0, 112.0
TERMS = [("65536", [16]), ("-65536", [16]), ("28", [4, 3, 2]), ("1", [0]), ("sum: 24", [4, 3])]

DRAWING = Sketch("Four terms on the scale of the largest: fourteen places are kept, what lies behind them is cut",
                 "Places from 65536 down to 8, fourteen of them, and three behind these, 4, 2 and 1. 65536 and -65536 have a bit in the first place. "
                 "28 is 16, 8 and 4, and its 4 is cut. 1 is cut whole. The sum is 24.")
DRAWING.text(LEFT, 12, "65536", "label")
DRAWING.text(LEFT + (KEPT - 0.2) * CELL, 12, "8", "label", anchor="end")
DRAWING.text(LEFT + (KEPT + CUT / 2) * CELL, 12, "cut", "label", anchor="middle")
for row, (name, places) in enumerate(TERMS):
    y = 20.0 + row * 22 + (6 if row == len(TERMS) - 1 else 0)
    DRAWING.text(LEFT - 10, y + 11, name, "name" if row == len(TERMS) - 1 else "", anchor="end")
    for column in range(KEPT + CUT):
        is_set, is_cut = 16 - column in places, column >= KEPT
        kind = ("waste" if is_cut else "work") if is_set else "empty"
        if not is_cut or row < len(TERMS) - 1:
            DRAWING.box(LEFT + column * CELL, y, CELL - 2, 15, kind)
