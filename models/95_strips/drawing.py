"""How far the four strips of a pair of tiles of queries walk under a mask, dealt as in 56 and as here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 92, 8
DRAWING = Sketch("Four strips of queries under a mask: who takes which, and how far each walks",
                 "Two groups of four rows, one row for each warpgroup. Above, 56: the first block has strips 0 and 1, which see seven tiles of keys, and waits for the second block, whose strips 2 and 3 see eight. Below, 95: each "
                 "block has a strip of seven and one of eight, so that both blocks have as much to do and a block's warpgroups end apart.")
y = 12.0
for name, rows in (("56: neighbours", (("block 0", 0, 7), ("", 1, 7), ("block 1", 2, 8), ("", 3, 8))),
                   ("95: the outer two, the inner two", (("block 0", 0, 7), ("", 3, 8), ("block 1", 1, 7), ("", 2, 8)))):
    DRAWING.text(2, y, name, "name")
    lanes = []
    waits = name.startswith("56")
    for block, strip, tiles in rows:
        spans = [(0, tiles, "work", f"strip {strip}: {tiles} tiles of keys")]
        if waits and tiles < UNTIL:
            spans.append((tiles, UNTIL, "waste", ""))
        lanes.append((block, spans))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "The last 256 queries of a text of 1024. Hatched: waits.", "label")
