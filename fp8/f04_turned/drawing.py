"""What a lane of a turning warp has of sixteen keys, and what it makes of it."""
from tools.site.sketch import Sketch

KEYS = ("2c", "2c+1", "2c+8", "2c+9")

DRAWING = Sketch("How a tile is turned: ldmatrix gives a lane two columns of two keys, two permutations take the columns apart, stmatrix writes rows",
                 "Above, what lane 4u + c gets from ldmatrix.trans: two registers of four bytes, in the first columns 2u and 2u + 1 of key 2c and of key 2c + 1, in the second those of keys 2c + 8 and 2c + 9. "
                 "Below, after two permutations: one register has column 2u of all four keys, the other column 2u + 1. They are four neighbours of a row of V turned, in the order of P's registers.")
DRAWING.text(4, 14, "lane 4u + c, after ldmatrix.trans", "label")
for i, key in enumerate(KEYS):
    x = 4 + 90 * i
    DRAWING.text(x + 40, 30, f"key {key}", "label", "middle")
    DRAWING.box(x, 36, 40, 22, "data", "2u")
    DRAWING.box(x + 40, 36, 40, 22, "copy", "2u+1")
DRAWING.text(4, 78, "after two permutations: column 2u", "label")
DRAWING.text(4, 126, "and column 2u+1", "label")
for i, key in enumerate(KEYS):
    DRAWING.box(4 + 90 * i, 84, 80, 22, "data", key)
    DRAWING.box(4 + 90 * i, 132, 80, 22, "copy", key)
