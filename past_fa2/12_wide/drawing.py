from tools.site.sketch import Sketch

DRAWING = Sketch("One SM, eight warps: two blocks copy K and V twice, one block once",
                 "Left, 11: two blocks of four warps on an SM, each with a copy of the same tile of K and V in shared memory, two arrows from L2. Right, 12: one block of eight warps with one copy, one "
                 "arrow from L2.")
for x, name, blocks in ((2, "11: 2 blocks, 128 queries", 2), (192, "12: 1 block, 256 queries", 1)):
    DRAWING.text(x, 12, name, "name")
    DRAWING.box(x, 20, 174, 22, "data", "L2: K, V")
    wide = 174 / blocks
    for block in range(blocks):
        left = x + block * wide
        DRAWING.arrow(left + wide / 2, 44, left + wide / 2, 66)
        DRAWING.box(left + (3 if block else 0), 60 + 8, wide - 3, 92, "empty")
        DRAWING.box(left + 8, 76, wide - 19 + (5 if blocks == 1 else 0), 30, "copy" if block == 0 else "waste", "K, V tile" if blocks == 1 else "K, V", blocks == 1)
        warps = 8 // blocks
        unit = (wide - 19) / warps
        for warp in range(warps):
            DRAWING.box(left + 8 + warp * unit, 118, unit, 32, "work", str(warp))
    DRAWING.text(x, 178, "64 KiB from L2 per tile" if blocks == 2 else "32 KiB from L2 per tile", "label")
DRAWING.text(2, 194, "numbers: warps.  Hatched: the same again.", "label")
