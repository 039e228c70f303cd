"""The bits of a number of e4m3 over eight times its logarithm, between two powers of two and a bit beyond."""
from math import log2

from tools.site.sketch import Sketch

DRAWING = Sketch("The bits of e4m3 over the logarithm of its numbers: a chain of straight lines that touches eight times the logarithm at each power of two",
                 "Across stands the logarithm of a number from 16 to 64, up the whole number that its seven bits are. The numbers of e4m3 in between are dots. The straight line is eight times the logarithm and 56. The dots of powers of two lie on it, the others below it, by 0.68 at most, three or four steps behind a power of two.")
LEFT, RIGHT, TOP, BOTTOM = 44, 352, 30, 262
LOW, HIGH = 4, 6  # powers of two
CODES = range(8 * (LOW + 7), 8 * (HIGH + 7) + 1)


def at(logarithm: float, code: float) -> tuple[float, float]:
    return (LEFT + (RIGHT - LEFT) * (logarithm - LOW) / (HIGH - LOW), BOTTOM - (BOTTOM - TOP) * (code - CODES[0]) / len(CODES))


def number(code: int) -> float:
    return 2.0 ** (code // 8 - 7) * (1 + code % 8 / 8)


DRAWING.text(4, 14, "the bits, as a whole number", "label")
DRAWING.line(LEFT, BOTTOM, LEFT, TOP - 8)
for code in CODES[::4]:
    DRAWING.line(LEFT - 4, at(LOW, code)[1], LEFT, at(LOW, code)[1])
    DRAWING.text(LEFT - 8, at(LOW, code)[1] + 4, f"{code}", "label", "end")
ticks = [(log2(each), f"{each}") for each in (16, 20, 24, 28, 32, 40, 48, 56, 64)]
DRAWING.number_line(BOTTOM, LOW, HIGH, ticks, LEFT, RIGHT)
DRAWING.text(RIGHT, BOTTOM + 34, "the number; its logarithm is to scale", "label", "end")
DRAWING.line(*at(LOW, CODES[0]), *at(HIGH, CODES[-1]), "dashed")
DRAWING.text(150, 60, "8 (log2 + 7)", "label", "end")
DRAWING.arrow(152, 60, at(4.95, 95.6)[0] - 4, at(4.95, 95.6)[1] - 4)
for code in CODES:
    x, y = at(log2(number(code)), code)
    if code > CODES[0]:
        DRAWING.line(*at(log2(number(code - 1)), code - 1), x, y)
    DRAWING.box(x - 3, y - 3, 6, 6, "copy" if code % 8 == 0 else "work")
DRAWING.text(330, 208, "on the line: powers of two", "label", "end")
DRAWING.box(338, 201, 6, 6, "copy")
DRAWING.text(330, 226, "0.68 below it at most", "label", "end")
DRAWING.box(338, 219, 6, 6, "work")
