"""Exponentials of two warpgroups at once, and by turns: m07 and m08."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL, PRODUCTS, EXP, SCALE = 24, 8, 2, 1.6, 0.4  # of a warpgroup that is alone with it; invented


def by_turns(at: float) -> list[tuple]:
    bars = []
    while at < UNTIL:
        for length, kind, words in ((PRODUCTS, "work", "QK, PV"), (EXP, "data", "exp"), (SCALE, "empty", "O")):
            if at >= 0 and at < UNTIL:
                bars.append((at, at + length, kind, words))
            at += length
    return bars


def together() -> list[tuple]:
    bars, at = [], 0.0
    for length, kind, words in ((PRODUCTS - SCALE / 2, "work", "QK"), (SCALE, "empty", "O"), (PRODUCTS - SCALE / 2, "work", "PV"), (2 * EXP, "data", "exp at half speed"), (1, "work", "QK")):
        bars.append((at, min(at + length, UNTIL), kind, words))
        at += length
    return [bar for bar in bars if bar[0] < bar[1]]


DRAWING = Sketch("Two warpgroups with the same work at the same time, in m07, and by turns, in m08",
                 "Two pairs of rows over time, of warpgroups A and B. m07: both wait for the tensor cores, which they share, and scale O between QK and PV; then both make exponentials at the same time, each at half the speed. "
                 "m08: A has the tensor cores for its QK and PV while B makes exponentials at full speed, and then the other way round; a barrier hands over the turn. O is scaled behind the exponentials, outside of the turn. All lengths are invented.")
y = 12.0
for name, rows, barriers in (("m07: at the same time", (together(), together()), ()), ("m08: by turns", (by_turns(0), by_turns(-PRODUCTS)), (2, 4, 6))):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, list(zip("AB", rows)), LEFT, FULL - 2, UNTIL, barriers) + 18
DRAWING.text(2, y - 4, "exp: exponentials. O: it is scaled.", "label")
DRAWING.text(2, y + 9, "Lines: a barrier hands over the turn. Lengths are invented.", "label")
