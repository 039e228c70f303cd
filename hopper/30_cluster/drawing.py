from tools.site.sketch import Sketch

BLOCKS, WARPGROUPS, TILE_KIB = 2, 2, 32
DRAWING = Sketch("A cluster of two blocks: each requests one panel, which lands in both; each warpgroup releases a stage in both",
                 "Above, a tile of K or V in L2, two panels of 64 columns. Block 0 requests panel 0, block 1 for panel 1, and each copy lands in the same stage of both blocks and counts there at full, which waits for all "
                 f"{TILE_KIB} KiB. Below, the two warpgroups of each block arrive at empty of their own block and, dashed, at that of the other one, so that each counts {BLOCKS * WARPGROUPS} arrivals before the next tile may be copied.")
WIDE, LEFT = 166, (2, 200)
DRAWING.text(2, 31, "L2: a tile", "label")
for panel in range(2):
    DRAWING.text(133 + 102 * panel, 12, f"block {panel}", "label", "middle")
    DRAWING.box(92 + 102 * panel, 18, 82, 18, "data", f"panel {panel}")
place = lambda block, i: LEFT[block] + 8 + 78 * i
for block in range(BLOCKS):
    DRAWING.box(LEFT[block], 66, WIDE, 196, "empty")
    DRAWING.text(LEFT[block] + (WIDE - 6 if block else 6), 80, f"block {block}", "name", "end" if block else "start")
    for i in range(2):
        DRAWING.box(place(block, i), 100, 72, 18, "copy", f"panel {i}")
        DRAWING.box(place(block, i), 168, 72, 18, "work", f"wg {i}")
    DRAWING.box(place(block, 0), 130, 150, 18, "empty", f"full: {TILE_KIB} KiB")
    DRAWING.box(place(block, 0), 236, 150, 18, "empty", f"empty: {BLOCKS * WARPGROUPS} arrive", True)
    DRAWING.arrow(place(block, 0) + 75, 148, place(block, 0) + 75, 166)
for panel in range(2):
    for block in range(BLOCKS):
        DRAWING.arrow(133 + 102 * panel, 36, place(block, panel) + 36 + (8 if panel == block else 0), 99, "dashed" if panel else "")
for block in range(BLOCKS):
    for i in range(WARPGROUPS):
        x = place(block, i) + 36
        DRAWING.arrow(x, 186, x, 235)
        DRAWING.arrow(x, 186, place(1 - block, 0) + (150 - 14 - 16 * (1 - i) if block else 14 + 16 * i), 235, "dashed")
DRAWING.text(2, 278, "Dashed below: into the other block.", "label")
