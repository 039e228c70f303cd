"""A row of two heads, the warp that copies it, and the two that read it."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A row of two heads is copied by one warp, and read by two",
                 "Four keys as rows, each of eight chunks: four of head 0 and four of head 1. The upper two rows are copied by warp 0, all eight chunks of them, the lower two by warp 1. Below, warp 0 reads the left half of all rows, warp 1 the right half.")
CELL, LEFT = 26, 92
for half, name in enumerate(("head 0", "head 1")):
    DRAWING.text(LEFT + (4 * half + 2) * CELL, 14, name, "label", "middle")
for warp in range(2):
    DRAWING.text(4, 42 + 40 * warp, f"warp {warp} copies", "label")
    DRAWING.grid(LEFT, 22 + 40 * warp, 8 * CELL, 36, 2, 8, lambda r, c: "copy")
DRAWING.text(LEFT + 8 * CELL + 8, 66, "128 B", "label")
DRAWING.text(4, 140, "each reads", "label")
for warp in range(2):
    DRAWING.box(LEFT + 4 * CELL * warp + 2, 112, 4 * CELL - 4, 44, "work", f"warp {warp}")
