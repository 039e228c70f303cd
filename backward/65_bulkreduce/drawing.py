from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("The way of dQ in 64 and in 65: 32 instructions of each warp, or eight stores and one request",
                 "Above, 64: a warp's instruction takes one number of each lane. They lie in eight rows of the sum, four in each with a gap behind every one. Below, 65: lanes store four registers each, side by side in shared "
                 "memory; the copy engine adds 16 KiB to the sum, which has the same order.")
DRAWING.text(2, 12, "64: one number of each lane", "name")
SIDE, STEP = 12, 16
for row in range(8):
    for column in range(8):
        DRAWING.box(2 + column * STEP, 22 + row * 13, SIDE, 10, "work" if column % 2 == 0 else "empty")
DRAWING.text(140, 40, "8 rows of the sum,", "label")
DRAWING.text(140, 54, "a sector of 32 B in each,", "label")
DRAWING.text(140, 68, "half of it used", "label")
DRAWING.text(140, 94, "32 such instructions of", "label")
DRAWING.text(140, 108, "each of eight warps a tile", "label")
TOP = 160
DRAWING.text(2, TOP, "65: four numbers of each lane, side by side", "name")
DRAWING.grid(2, TOP + 10, FULL - 4, 20, 1, 8, lambda row, column: "work", lambda row, column: f"lane {column}" if column < 7 else "...")
DRAWING.text(2, TOP + 46, "512 B of a warp; eight of these stores", "label")
DRAWING.arrow(FULL / 2, TOP + 54, FULL / 2, TOP + 74)
DRAWING.box(2, TOP + 76, FULL - 4, 22, "copy", "copy engine: add these 16 KiB, one instruction")
DRAWING.arrow(FULL / 2, TOP + 100, FULL / 2, TOP + 118)
DRAWING.box(2, TOP + 120, FULL - 4, 22, "data", "sum of dQ in L2: the same order")
