"""Two warpgroups and three, over time, at one tensor core and one unit of exponentials: 49 and 51."""
from tools.site.sketch import FULL, Sketch

UNTIL, LEFT = 24, 70


def bars(offset: int, cycle: int) -> list[tuple]:
    """A product of 2, then exponentials of 4, in each cycle."""
    found = []
    for begin in range(offset - 2 * cycle, UNTIL, cycle):
        for start, end, kind, words in ((begin, begin + 2, "work", "P"), (begin + 2, begin + 6, "data", "exp")):
            if start >= 0 and end <= UNTIL:
                found.append((start, end, kind, words))
    return found


DRAWING = Sketch("Two warpgroups leave gaps in the row of products and in that of exponentials; three fill them",
                 "Above, 49: two warpgroups, each with a product and then exponentials; the tensor cores idle a third of the time. Below, 51: three warpgroups, each a third of the cycle after the one "
                 "before; a product is always on its way. All lengths of time are invented.")
DRAWING.text(2, 12, "49: two warpgroups", "name")
idle = [(start, start + 1, "waste", "") for start in range(2, UNTIL, 3)]
y = DRAWING.timeline(20, [("wg 0", bars(0, 6)), ("wg 1", bars(3, 6)), ("idle", idle)], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 16, "51: three warpgroups, in the best case", "name")
y = DRAWING.timeline(y + 24, [("wg 0", bars(0, 6)), ("wg 1", bars(2, 6)), ("wg 2", bars(4, 6))], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "P: a product. exp: exponentials.", "label")
DRAWING.text(2, y + 24, "Hatched: the tensor cores idle. Lengths are invented.", "label")
