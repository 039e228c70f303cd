from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Who holds what: K and V stay, Q and dO pass by, dS alone is handed over",
                 "Two warpgroups, each with 64 keys: its rows of K and V lie in shared memory, its dK and dV in registers. Tiles of 64 queries, Q and dO, pass through a ring of two stages and are read by both. Each warpgroup "
                 "stores its dS, 64 queries by 64 keys, beside the other's. Then each reads all of dS and makes 64 columns of dQ, which it adds to the sum in global memory.")
HALF = FULL / 2
DRAWING.text(2, 12, "a ring, copied ahead, for both", "name")
for stage, kind in ((0, "work"), (1, "copy")):
    DRAWING.box(2 + stage * (HALF - 2), 20, HALF - 4, 20, kind, f"Q, dO of tile {stage + 4}")
for group in range(2):
    x = 2 + group * (HALF - 2)
    DRAWING.arrow(x + 40 + 90 * group, 42, x + 40 + 90 * group, 58)
    DRAWING.text(x, 74, f"warpgroup {group}", "name")
    DRAWING.box(x, 80, HALF - 4, 20, "data", f"K, V: keys {64 * group} to {64 * group + 63}")
    DRAWING.box(x, 104, HALF - 4, 20, "work", "S and dP, transposed")
    DRAWING.box(x, 128, HALF - 4, 20, "data", "dK, dV: registers")
    DRAWING.arrow(x + 86, 150, x + 86, 172)
DRAWING.text(HALF, 164, "stmatrix", "label", "middle")
for group in range(2):
    DRAWING.box(2 + group * (HALF - 2), 174, HALF - 4, 20, "copy", f"dS: keys {64 * group} to {64 * group + 63}", True)
DRAWING.text(2, 210, "64 queries down, 128 keys across; both read all of it", "label")
for group in range(2):
    x = 2 + group * (HALF - 2)
    DRAWING.arrow(x + 86, 216, x + 86, 232)
    DRAWING.box(x, 234, HALF - 4, 20, "work", f"dQ: columns {64 * group} to {64 * group + 63}")
DRAWING.text(2, 270, "added to the sum of dQ in global memory", "label")
