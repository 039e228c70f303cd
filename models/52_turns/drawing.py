"""Three products at once, and one after the other: 51 and 52."""
from tools.site.sketch import FULL, Sketch

UNTIL, LEFT = 24, 70


def by_turns(offset: int) -> list[tuple]:
    found = [(0, offset, "waste", "")] if offset else []
    for begin in range(offset, UNTIL, 6):
        for start, end, kind, words in ((begin, begin + 2, "work", "P"), (begin + 2, begin + 6, "data", "exp")):
            if end <= UNTIL:
                found.append((start, end, kind, words))
    return found


TOGETHER = [(0, 6, "work", "P"), (6, 12, "data", "exp"), (12, 18, "work", "P"), (18, 24, "data", "exp")]
DRAWING = Sketch("Without turns three products share the tensor cores and end together; by turns each ends early, and its exponentials begin",
                 "Above, 51: three warpgroups start their products together, and each takes three times as long; then all three make exponentials. Below, 52: one after the other has its product alone, and "
                 "makes exponentials while the next one multiplies. All lengths of time are invented.")
DRAWING.text(2, 12, "51: all three when they are ready", "name")
y = DRAWING.timeline(20, [(f"wg {i}", TOGETHER) for i in range(3)], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 16, "52: by turns", "name")
y = DRAWING.timeline(y + 24, [(f"wg {i}", by_turns(2 * i)) for i in range(3)], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "P: a product. exp: exponentials.", "label")
DRAWING.text(2, y + 24, "Hatched: until the first turn. Lengths are invented.", "label")
