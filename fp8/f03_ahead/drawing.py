"""One sum over all keys, and one for each tile."""
from tools.site.sketch import Sketch

DRAWING = Sketch("One accumulator over all keys, and one for each tile that is added to O",
                 "Above, f01: each tile of keys is added into the same accumulator of 14 bits, and of later tiles less and less is left. Below, f02: each tile begins at zero, and what comes of it is added to O, which has the 24 bits of an f32.")
DRAWING.text(4, 14, "f01: O itself, 14 bits", "label")
for tile, kept in enumerate((80, 64, 48, 28, 10)):
    DRAWING.box(4 + 72 * tile, 22, 66, 22, "waste")
    DRAWING.box(4 + 72 * tile, 22, kept * 66 / 80, 22, "work")
DRAWING.text(4, 62, "what is kept of tiles 0, 1, 2 ... of keys", "label")
DRAWING.text(4, 92, "f02: a tile's own, 14 bits", "label")
for tile in range(5):
    DRAWING.box(4 + 72 * tile, 100, 66, 22, "work", f"tile {tile}")
DRAWING.text(4, 140, "added to O, 24 bits", "label")
DRAWING.box(4, 148, 354, 22, "data", "O = O * correction + tile")
