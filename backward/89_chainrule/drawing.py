"""tanh and its derivative over a score, in caps."""
from math import tanh

from tools.site.sketch import Sketch

DRAWING = Sketch("A capped score and its derivative: near the cap a step of the score changes next to nothing",
                 "Above, the capped score over the score, from 0 to 2.4 caps: it rises like the score and bends towards the cap. Below, its derivative: 1 at 0, a tenth at 1.8 caps. Two equal steps of the score, one near 0 and one near the end, make a large step and a small one.")
LEFT, WIDE = 40.0, 280.0
across = lambda x: LEFT + WIDE * x / 2.4
for bottom, tall, words, function in ((112.0, 90.0, "f(s): the capped score", tanh), (236.0, 90.0, "f'(s): its derivative", lambda x: 1 - tanh(x) ** 2)):
    down = lambda y: bottom - tall * y
    points = [(across(2.4 * i / 48), down(function(2.4 * i / 48))) for i in range(49)]
    for (x, y), (to_x, to_y) in zip(points, points[1:]):
        DRAWING.line(x, y, to_x, to_y)
    DRAWING.arrow(LEFT, bottom, LEFT + WIDE + 12, bottom)
    for x, name in ((0.0, "0"), (1.0, "the cap"), (2.0, "twice the cap")):
        DRAWING.line(across(x), bottom - 3, across(x), bottom + 3)
        DRAWING.text(across(x), bottom + 15, name, "label", "middle")
    DRAWING.text(across(1.15), down(0.45), words, "label")
    for begin in (0.2, 1.9):  # two equal steps of the score, and what becomes of them
        low, high = function(begin), function(begin + 0.3)
        rise = high - low if function is tanh else low
        DRAWING.box(across(begin), down(max(low, high)), across(0.3) - across(0), tall * rise, "work")
