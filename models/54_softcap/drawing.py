"""The tanh of a softcap and its polynomial; what a score takes: 48 and 54."""
from math import tanh

from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("tanh and its polynomial are one line up to a quarter and beyond, and what a warp's scores take of the unit for exponentials, in 48 and here",
                 "Above, tanh(x) from 0 to 1.4 as a line, and the polynomial of degree 3 as a dashed one: from a half on one sees them part. Below, two bars for each of 48 and 54: "
                 "48 takes 1024 clocks of the unit for exponentials and 352 to issue, 54 512 and 384.")
LEFT, BOTTOM, WIDE, TALL = 34.0, 118.0, 300.0, 100.0
at = lambda x, y: (LEFT + WIDE * x / 1.5, BOTTOM - TALL * y / 1.2)
polynomial = lambda x: x * (0.999843428 - 0.323198975 * x * x)
for function, kind, until in ((tanh, "", 1.45), (polynomial, "dashed", 1.3)):
    points = [at(until * i / 40, function(until * i / 40)) for i in range(41)]
    for (x, y), (to_x, to_y) in list(zip(points, points[1:]))[::2 if kind else 1]:
        DRAWING.line(x, y, to_x, to_y)
DRAWING.arrow(LEFT, BOTTOM, LEFT + WIDE + 12, BOTTOM)
for x, words in ((0.0, "0"), (0.25, "12.5"), (0.5, "25"), (1.0, "50: the cap")):
    DRAWING.line(at(x, 0)[0], BOTTOM - 3, at(x, 0)[0], BOTTOM + 3)
    DRAWING.text(at(x, 0)[0], BOTTOM + 15, words, "label", "middle")
DRAWING.text(*at(0.9, 0.86), "tanh", "label")
DRAWING.text(*at(1.0, 0.42), "polynomial", "label")
y = 160.0
for rung, bars in (("48", ((1024, "waste", "tanh, exp"), (352, "data", "issue"))), ("54", ((512, "waste", "exp"), (384, "data", "issue")))):
    DRAWING.text(4, y + 22, rung, "name")
    for i, (clocks, kind, words) in enumerate(bars):
        DRAWING.box(LEFT, y + 18 * i, clocks * 240 / 1024, 15, kind, words)
        DRAWING.text(LEFT + clocks * 240 / 1024 + 5, y + 18 * i + 11, f"{clocks} clocks", "label")
    y += 46
