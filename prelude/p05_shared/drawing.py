from tools.site.sketch import Sketch

GROUPS, KEYS = 16, 64  # of a block; of a tile

DRAWING = Sketch("A tile of keys is read from global memory once and serves sixteen queries",
                 f"Above, K and V in global memory, n rows each, cut into tiles of {KEYS}. One tile of each, outlined, has been copied by the block's 128 threads into "
                 f"shared memory. From there {GROUPS} groups of eight lanes, one per query, read every row of the tile. A barrier stands before the copy and one after it.")

DRAWING.text(4, 12, "global memory: K and V, in tiles of 64 rows", "label")
DRAWING.grid(4, 18, 360, 24, 1, 8, lambda row, tile: "data", lambda row, tile: f"tile {tile}" if tile < 7 else "...", lambda row, tile: tile == 2)
DRAWING.arrow(116, 44, 150, 84)
DRAWING.text(150, 62, "128 threads, 16 B each at a time", "label")
DRAWING.line(4, 76, 364, 76)
DRAWING.text(4, 70, "barrier", "label")
DRAWING.text(4, 104, "shared", "label")
DRAWING.text(4, 116, "memory", "label")
DRAWING.box(60, 86, 147, 36, "copy", "K tile\n64 x 128", True)
DRAWING.box(215, 86, 149, 36, "copy", "V tile\n64 x 128", True)
DRAWING.line(4, 132, 364, 132)
DRAWING.text(4, 145, "barrier", "label")
unit = 304 / GROUPS
for group in range(GROUPS):
    x = 60 + group * unit
    DRAWING.arrow(x + unit / 2, 124, x + unit / 2, 158)
    DRAWING.box(x, 160, unit, 22, "work", f"q{group}" if group < 10 else str(group))
DRAWING.text(4, 174, "groups", "label")
