"""Four warps and one ring, or four warps with a ring each."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Four warps multiply a tile together, or each has a ring and a tile of its own",
                 "Above, a ring of three large stages that four warps read together. Below, four small rings side by side, each above a warp of its own.")
DRAWING.text(4, 14, "d02: one ring, 32 KiB a stage, read by all four warps", "label")
for stage in range(3):
    DRAWING.box(4 + stage * 100, 22, 94, 22, "copy", f"stage {stage}")
DRAWING.box(4, 50, 294, 22, "work", "warps 0 to 3, together")
DRAWING.text(4, 98, "d04: a ring for each warp, 8 KiB a stage", "label")
for warp in range(4):
    for stage in range(3):
        DRAWING.box(4 + warp * 76 + stage * 22, 106, 20, 22, "copy", f"{stage}")
    DRAWING.box(4 + warp * 76, 134, 64, 22, "work", f"warp {warp}")
