"""Two tiles of 32 rows that read the same keys, or one of 64."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Four tiles of 16 rows, each with its own copy of the keys' way, or one of 64",
                 "Left, d06: 64 rows are two tiles of 32, and each block reads all keys. Right, d12: one tile of 64 rows, and the keys are read once, half of each step by either warpgroup.")
for column, (name, tiles) in enumerate((("d06", 2), ("d12", 1))):
    left = 4 + 190 * column
    DRAWING.text(left, 14, f"{name}: rows, and keys", "label")
    for tile in range(tiles):
        top = 22 + 74 * tile
        DRAWING.box(left, top, 40, 136 if tiles == 1 else 62, "data", "64" if tiles == 1 else "32")
        for part in range(4):
            DRAWING.box(left + 48 + 28 * part, top, 26, 136 if tiles == 1 else 62, "copy" if part % 2 == 0 else "work", "K V")
DRAWING.text(4, 180, "read twice", "label")
DRAWING.text(194, 180, "read once", "label")
