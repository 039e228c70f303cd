"""How many maxima one after the other: of floats two at a time, of integers three at a time. One lane's 32 scores of a row."""
from tools.site.sketch import FULL, Sketch

SCORES, LEFT = 32, 52
FLOATS, INTEGERS = SCORES, SCORES // 2 + 1  # instructions of a row and lane; the last one joins two chains

ROWS = [("35", [(i, i + 1, "copy", "") for i in range(FLOATS)] + [(FLOATS, FLOATS + 12, "work", "weights")]),
        ("36", [(i, i + 1, "data", "") for i in range(INTEGERS)] + [(INTEGERS, INTEGERS + 12, "work", "weights")])]
DRAWING = Sketch("The instructions that find the largest of a lane's 32 scores of a row: 32 of floats, 17 of integers, and then the weights",
                 "35 takes 32 maxima of two floats. 36 takes 16 maxima of three integers, which are the same bits, in two chains, and one of both chains. Then weights are made. The length of the weights is invented.")
DRAWING.text(2, 12, "One row of a lane in a careful warp: maxima, then weights.", "label")
y = DRAWING.timeline(20, ROWS, LEFT, FULL - 2, FLOATS + 12)
DRAWING.text(2, y + 12, "A box: one instruction. How long weights take is invented.", "label")
