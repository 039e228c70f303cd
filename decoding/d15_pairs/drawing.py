"""A pair of blocks: each joins half of the rows."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Two blocks of a pair, each of which joins half of the rows",
                 "Two blocks have the keys' first and second half. Where keys stood in its shared memory each finds what both know of its own rows: the even ones in block 0, the odd ones in block 1.")
for block in range(2):
    left = 4 + 180 * block
    DRAWING.text(left, 14, f"block {block}: its keys", "label")
    for tile in range(4):
        DRAWING.box(left + 36 * tile, 22, 34, 24, "copy", "K V")
    DRAWING.text(left, 64, f"then, of rows {('0, 2, 4', '1, 3, 5')[block]} ...", "label")
    DRAWING.box(left, 72, 70, 24, "work", "from 0")
    DRAWING.box(left + 72, 72, 70, 24, "work", "from 1")
    DRAWING.box(left, 110, 142, 22, "data", "O of these rows")
