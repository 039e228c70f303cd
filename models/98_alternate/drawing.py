"""How far a block's two warpgroups walk in two pairs of tiles of queries, dealt as in 95 and as here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 92, 12
DRAWING = Sketch("A block's two warpgroups in two pairs of eight tiles of keys and four: always the same one has more, or by turns",
                 "Two groups of two rows. Above, 95: the first warpgroup walks over seven tiles and then three, the second over eight and four, and the first one waits. Below, 98: seven and four, eight and three: both eleven.")
y = 12.0
for name, walks in (("95: always the second", ((7, 3), (8, 4))), ("98: by turns", ((7, 4), (8, 3)))):
    DRAWING.text(2, y, name, "name")
    lanes = []
    for warpgroup, (long, short) in zip(("first", "second"), walks):
        spans = [(0, long, "work", f"{long} tiles of keys"), (long, long + short, "work", f"{short}")]
        if long + short < UNTIL and name.startswith("95"):
            spans.append((long + short, UNTIL, "waste", ""))
        lanes.append((warpgroup, spans))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Hatched: waits.", "label")
