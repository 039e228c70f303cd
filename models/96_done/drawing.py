"""Which tiles of keys the three warpgroups of a block multiply with under a mask, in 52 and in 96."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 112, 5
DRAWING = Sketch("Three warpgroups of a block under a mask: which tiles of keys each multiplies with",
                 "Two groups of three rows, for the queries from 384 to 575 of a text: strips of 64 that see four, four and five tiles of 128 keys. Above, 52: all three multiply with five. Below, 96: the first two stop after four.")
y = 12.0
for name, is_done in (("52: as far as the block", False), ("96: as far as its own queries see", True)):
    DRAWING.text(2, y, name, "name")
    lanes = []
    for strip, sees in enumerate((4, 4, 5)):
        first = 384 + 64 * strip
        spans = [(0, sees, "work", f"{sees} tiles of keys")]
        if sees < UNTIL and not is_done:
            spans.append((sees, UNTIL, "waste", ""))
        lanes.append((f"{first} to {first + 63}", spans))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Queries 384 to 575. Hatched: all weights are 0.", "label")
