"""A tile of 82 and one of 83, to scale."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A tile of 82 and one of 83: as many products, twice the scores, and dQ cut the other way",
                 "Left, 82: S of 128 keys and 64 queries, and dQ of 64 queries and 128 columns, cut between two columns. Right, 83: S of 128 keys and 128 queries, and dQ of 128 queries and 64 columns, cut between two rows. The halves of dQ belong to one warpgroup each.")
UNIT = 0.62
for left, name, queries, columns in ((4.0, "82: d = 128", 64, 128), (FULL / 2 + 8, "83: d = 64", 128, 64)):
    DRAWING.text(left, 14, name, "name")
    DRAWING.text(left, 32, f"S: {queries} x 128 keys", "label")
    DRAWING.box(left, 38, 128 * UNIT, queries * UNIT, "data")
    DRAWING.text(left, 140, f"dQ: {queries} x {columns}", "label")
    wide, tall = columns * UNIT, queries * UNIT
    for half in (0, 1):
        across = half * wide / 2 if columns == 128 else 0
        down = 0 if columns == 128 else half * tall / 2
        DRAWING.box(left + across, 146 + down, wide / 2 if columns == 128 else wide, tall if columns == 128 else tall / 2, ("work", "copy")[half])
DRAWING.text(4, 244, "Halves of dQ: a warpgroup each. Drawn to scale.", "label")
