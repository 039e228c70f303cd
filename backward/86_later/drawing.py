from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Two warpgroups at the end of a tile, in 85 and in 86",
                 "Two pairs of rows over time, a warpgroup each, of which the second takes longer for its dS. 85: the first one waits, hatched, until the second one has stored its dS, then both make dQ and dK. 86: each makes dS and dK and goes on with the next tile's S, dP and "
                 "exponentials; the first tile's dQ, outlined, comes behind them, and nobody waits. Lengths of time are invented.")
LEFT, UNTIL = 76, 15
y = 12.0


def later(dS: float) -> list[tuple]:
    return [(0, dS, "data", "dS"), (dS, dS + 2, "work", "dK"), (dS + 2, dS + 5.5, "work", "S, dP"), (dS + 5.5, dS + 8.5, "data", "2^S"), (dS + 8.5, dS + 10.5, "copy", "dQ", True)]


def at_once() -> list[tuple]:
    return [(3.6, 5.6, "copy", "dQ", True), (5.6, 7.6, "work", "dK"), (7.6, 11.1, "work", "S, dP"), (11.1, 14.1, "data", "2^S")]


for name, rows, barriers in (
        ("85: a barrier", ([(0, 2, "data", "dS"), (2, 3.6, "waste", ""), *at_once()], [(0, 3.6, "data", "dS"), *at_once()]), (3.6,)),
        ("86: dQ a tile later", (later(2), later(3.6)), ())):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, list(zip(("one", "the other"), rows)), LEFT, FULL - 2, UNTIL, barriers) + 18
DRAWING.text(2, y - 4, "Outlined: dQ of the same tile. Lengths are invented.", "label")
