from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Two blocks of a cluster: each brings a panel of Q and dO to both",
                 "L2 above holds a tile of queries, Q and dO, in two panels of 64 columns. Block 0 asks for panel 0, block 1 for panel 1. Each panel lands in the shared memory of both. Below, each block's own: its keys, and "
                 "its share of dQ, which goes back to L2.")
HALF = FULL / 2
DRAWING.text(2, 12, "a tile of Q and dO in L2", "name")
for panel in range(2):
    DRAWING.box(2 + panel * (HALF - 2), 20, HALF - 4, 20, "data", f"panel {panel}: 16 KiB")
for block in range(2):
    x = 2 + block * (HALF - 2)
    DRAWING.text(x, 104, f"block {block}", "name")
    for panel in range(2):
        DRAWING.box(x + panel * 89, 110, 85, 20, "copy", f"panel {panel}", panel == block)
        DRAWING.arrow(2 + panel * (HALF - 2) + 86, 42, x + panel * 89 + 42, 92 if panel != block else 88)
    DRAWING.box(x, 136, HALF - 4, 20, "data", f"its keys: {128 * block} to {128 * block + 127}")
    DRAWING.box(x, 160, HALF - 4, 20, "work", "its share of dQ")
    DRAWING.arrow(x + 86, 182, x + 86, 200)
DRAWING.text(2, 214, "Outlined: what a block asks for. 32 KiB of dQ each", "label")
DRAWING.text(2, 228, "go back to L2, as before.", "label")
