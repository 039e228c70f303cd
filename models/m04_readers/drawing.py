"""Who reads a list and asks for K and V, in 59 and here, and when the warps get their tiles of keys."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 74, 29
READ, ASK, ARRIVE, WALK = 3, 2, 2, 6
DRAWING = Sketch("One thread that reads a list, and two",
                 "Two groups of rows over time. Above, 59: one thread asks for K, reads the list's next entry and asks for V, tile by tile; that takes longer than the warps need for a tile, so they wait after each. "
                 "Below, m04: one thread asks for K and reads the next entry, another one asks for V and reads it, too; both are faster than the warps, who go on from tile to tile.")


def rounds(every: float, begin: float, parts: tuple) -> list[tuple]:
    """The same for each tile: (how long, kind, words). What does not end in time is left out."""
    spans, tile = [], 1
    while begin < UNTIL:
        at = begin
        for long, kind, words in parts:
            if at + long <= UNTIL:
                spans.append((at, at + long, kind, words.format(tile, tile - 1)))
            at += long
        begin, tile = begin + every, tile + 1
    return spans


read, K, V = (READ, "data", "read"), (ASK, "copy", "K{0}"), (ASK, "copy", "V{1}")
tile, slow = (WALK, "work", "tile {0}"), ASK + READ + ASK
y = 12.0
for name, lanes in (("59: one thread", [("thread", rounds(slow, 0, (K, read, V))), ("warps", rounds(slow, slow + ARRIVE, (tile, (slow - WALK, "waste", ""))))]),
                    ("m04: two threads", [("K's thread", rounds(WALK, 0, (K, read))), ("V's thread", rounds(WALK, 0, (V, read))),
                                          ("warps", rounds(WALK, ASK + ARRIVE, (tile,)))])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "read: the list's next entry. K1, V0: asks for that tile.", "label")
DRAWING.text(2, y + 9, "Not to scale. Hatched: the warps wait.", "label")
