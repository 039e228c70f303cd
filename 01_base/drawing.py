from tools.site.sketch import Sketch

DRAWING = Sketch("How often a tile of K is read from shared memory for 64 queries",
                 "Left, p09: four warps with 16 query rows each, and each reads the whole tile of K: four reads. Right, 01: two warps with 32 rows each, two groups of 16. Each warp "
                 "reads the tile once and multiplies every fragment twice, once for each group: two reads.")

for x, name, warps, groups in ((2, "p09: 4 warps x 16 rows", 4, 1), (192, "01: 2 warps x 32 rows", 2, 2)):
    DRAWING.text(x, 12, name, "name")
    DRAWING.box(x, 22, 174, 24, "data", "K tile, shared memory")
    wide = 174 / warps
    for warp in range(warps):
        left = x + warp * wide
        DRAWING.arrow(left + wide / 2, 48, left + wide / 2, 72)
        DRAWING.box(left + 2, 74, wide - 4, 24, "copy", "frag" if groups == 1 else "fragment", groups == 2)
        for group in range(groups):
            at = left + 2 + group * (wide - 4) / groups
            middle = at + (wide - 4) / groups / 2
            DRAWING.arrow(middle, 100, middle, 120)
            DRAWING.box(at, 122, (wide - 4) / groups, 32, "work", "16\nrows")
        DRAWING.text(left + wide / 2, 168, f"warp {warp}", "label", "middle")
    DRAWING.text(x, 188, f"{warps} reads of the tile")
