"""Which rows lie in the L2 cache when a launch begins, and with which it begins: 91 and 94."""
from tools.site.sketch import FULL, Sketch

LEFT, RIGHT, CACHED = 60.0, FULL - 2, 50 / 134  # of the sum of dQ at n = 1024: 134 MB, and an L2 cache of 50 MB
WIDE = RIGHT - LEFT
DRAWING = Sketch("What the L2 cache holds when each launch begins, in 91 and in 94",
                 "Two groups of three bars, the launches one after the other: the first one, which writes D and zeros, the walk, and the last one, which makes dQ from its sum. A bar is all rows, the first row on the left; an arrow says in which direction a launch goes through them, and a box which rows the L2 cache holds when it begins. "
                 "91: all three go from the first row to the last. When the walk begins, the cache holds the last rows, which the first launch has just written, and so it does when the last launch begins; both begin with the first rows, so what is there is of no use to them. "
                 "94: the first launch goes backwards, so the first rows are in the cache when the walk begins with them. The walk ends with the last rows, and the last launch goes backwards and begins with these.")
y = 12.0
for name, backwards in (("91: all forwards", False), ("94: first and last backwards", True)):
    DRAWING.text(2, y, name, "name")
    y += 16
    DRAWING.text(LEFT, y, "first rows", "label")
    DRAWING.text(RIGHT, y, "last rows", "label", "end")
    y += 6
    for launch, words in (("first", "D and zeros"), ("walk", ""), ("last", "dQ from its sum")):
        goes_back = backwards and launch != "walk"
        DRAWING.text(LEFT - 6, y + 12, launch, "", "end")
        if launch == "first":
            DRAWING.box(LEFT, y, WIDE, 16, "empty", words)
        else:
            is_left = backwards and launch == "walk"
            begin = LEFT if is_left else RIGHT - WIDE * CACHED
            DRAWING.box(LEFT if not is_left else LEFT + WIDE * CACHED, y, WIDE * (1 - CACHED), 16, "empty", words)
            DRAWING.box(begin, y, WIDE * CACHED, 16, "work" if backwards else "waste", "in L2", backwards)
        start, end = (RIGHT, LEFT) if goes_back else (LEFT, RIGHT)
        DRAWING.arrow(start, y + 22, end, y + 22)
        y += 32
    y += 14
DRAWING.text(2, y, "In L2: when the launch begins. Outlined: it begins with", "label")
DRAWING.text(2, y + 13, "these rows. Hatched: it comes to them last.", "label")
