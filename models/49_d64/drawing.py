"""What a block of a pair brings of a tile of K: 48 and 49."""
from tools.site.sketch import Sketch

DRAWING = Sketch("With 128 columns each block of a pair brings a panel of all rows; with 64 columns each brings half of the rows",
                 "Left, a tile of 128 rows and 128 columns, cut into a left half that block 0 brings and a right half that block 1 brings. Right, a tile of 128 rows and 64 columns, cut into an upper half of block 0 and a lower half of block 1.")
DRAWING.text(4, 14, "d = 128: by panels", "label")
DRAWING.box(4, 22, 80, 120, "work", "block 0")
DRAWING.box(86, 22, 80, 120, "copy", "block 1")
DRAWING.text(226, 14, "d = 64: by rows", "label")
DRAWING.box(226, 22, 80, 59, "work", "block 0")
DRAWING.box(226, 83, 80, 59, "copy", "block 1")
DRAWING.text(174, 84, "128", "label")
DRAWING.text(314, 56, "64 keys", "label")
DRAWING.text(314, 118, "64 keys", "label")
