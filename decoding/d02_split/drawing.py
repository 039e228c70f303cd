"""The tiles of a head's keys: one block, or four and a join."""
from tools.site.sketch import Sketch

DRAWING = Sketch("One block walks over all tiles of keys, or four blocks over four each and a launch joins them",
                 "Above, a row of sixteen tiles in one colour. Below, the same tiles in four groups, each of a block, and behind them a box that joins.")
DRAWING.text(4, 14, "d01: one block", "label")
DRAWING.box(4, 22, 298, 28, "work", "16 tiles of keys, one after the other")
DRAWING.text(4, 74, "d02: four blocks at the same time", "label")
for share in range(4):
    DRAWING.box(4 + share * 76, 82, 70, 28, "work", f"share {share}")
DRAWING.box(316, 82, 48, 28, "copy", "join")
