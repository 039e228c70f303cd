"""Who walks how far under a mask: a pair of blocks of 48, and one of 56."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 60, 34
DRAWING = Sketch("How many tiles of keys two blocks walk under a mask, in 48 and in 56",
                 "Two pairs of rows. 48: both blocks have tiles of queries of one head, a long one and a short one. The first block's are a tile of keys shorter each, and it waits for the second. 56: the two blocks have the same "
                 "queries of two heads, and nobody waits.")
y = 12.0
for name, first, second in (
        ("48: two tiles of queries of head 0", [(0, 31, "work", "head 0, queries 30"), (31, 32, "waste", ""), (32, 33, "work", ""), (33, 34, "waste", "")],
         [(0, 32, "work", "head 0, queries 31"), (32, 34, "work", "")]),
        ("56: one tile of queries of heads 0 and 1", [(0, 32, "work", "head 0, queries 31"), (32, 33, "work", "")],
         [(0, 32, "work", "head 1, queries 31"), (32, 33, "work", "")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("block 0", first), ("block 1", second)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "A head's longest walk and its shortest. Hatched: waits.", "label")
