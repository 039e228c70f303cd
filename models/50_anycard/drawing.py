"""What a copy brings of the last tile of V: 50."""
from tools.site.sketch import Sketch

ROWS, VALID = 8, 5
DRAWING = Sketch("The last tile of V: rows behind the end of a text hold NaN in global memory, and zeros in shared memory, for 0 times NaN would be NaN",
                 f"From left to right: {ROWS} rows in global memory, of which the last {ROWS - VALID} are behind the end of the text and hold NaN; the size of each copy, 16 bytes or 0; the same rows in shared memory, the last "
                 f"{ROWS - VALID} of them zeros; and the weights that they are multiplied by, 0 for these.")
TOP, TALL = 34, 20
for x, head in ((4, "global memory"), (134, "copies"), (194, "shared memory"), (316, "weight")):
    DRAWING.text(x, 12, head, "label")
for row in range(ROWS):
    y, inside = TOP + row * TALL, row < VALID
    DRAWING.box(4, y, 96, TALL, "data" if inside else "waste", f"key {995 + row}" if inside else "NaN")
    DRAWING.arrow(104, y + TALL / 2, 126, y + TALL / 2)
    DRAWING.text(134, y + TALL / 2 + 4, "16 B" if inside else "0 B", "label")
    DRAWING.arrow(164, y + TALL / 2, 190, y + TALL / 2)
    DRAWING.box(194, y, 96, TALL, "copy" if inside else "empty", f"key {995 + row}" if inside else "0")
    DRAWING.text(316, y + TALL / 2 + 4, "P" if inside else "0", "label")
DRAWING.line(0, TOP + VALID * TALL, 368, TOP + VALID * TALL, "dashed")
DRAWING.text(4, TOP + ROWS * TALL + 22, "Dashed: the text of 1000 keys ends.", "label")
