"""What a pair of blocks copies in a window of 256, and what two blocks that work alone do: 46."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Above, two blocks as a pair: four tiles of keys, of which each block uses three. Below, each alone: three and three",
                 "Above a row of four tiles of keys. The first block uses the first three, the second block the last three. Below two rows of three tiles: each block has copied its own.")
DRAWING.text(4, 14, "as a pair: four tiles pass both", "label")
for block in range(2):
    for tile in range(4):
        used = block <= tile < block + 3
        DRAWING.box(96 + 68 * tile, 24 + 34 * block, 64, 26, "work" if used else "copy", f"keys {tile}" if used else "let pass")
    DRAWING.text(4, 42 + 34 * block, f"block {block}", "label")
DRAWING.text(4, 116, "alone: each its own three", "label")
for block in range(2):
    for tile in range(3):
        DRAWING.box(96 + 68 * tile, 126 + 34 * block, 64, 26, "work", f"keys {tile + block}")
    DRAWING.text(4, 144 + 34 * block, f"block {block}", "label")
