"""A list of blocks of 64 keys, two of which make a tile: 59."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A list of blocks of 64 keys: two by two, from anywhere, they make tiles of 128",
                 "A row of blocks of keys, of which a tile of queries meets five, the last one in part. Below, the tiles that are multiplied: two blocks each, the last one with the block in part, which has a stencil, and an empty half.")
LEFT, WIDTH, BLOCKS = 8, 26, 12
MET = {1: "1", 4: "4", 5: "5", 9: "9"}
DRAWING.text(LEFT, 10, "blocks of 64 keys: those that the list names", "label")
for block in range(BLOCKS):
    kind = "copy" if block == 10 else "work" if block in MET else "waste"
    DRAWING.box(LEFT + WIDTH * block, 18, WIDTH - 2, 24, kind, str(block) if block in MET or block == 10 else "")
DRAWING.text(LEFT, 66, "tiles that are multiplied: whole, whole, in part", "label")
for tile, halves in enumerate((("1", "4"), ("5", "9"), ("10", ""))):
    for half, words in enumerate(halves):
        DRAWING.box(LEFT + 30 + 92 * tile + 38 * half, 74, 37, 24, "copy" if words == "10" else "work" if words else "waste", words)
DRAWING.text(LEFT + 214, 114, "stencil, nothing", "label")
