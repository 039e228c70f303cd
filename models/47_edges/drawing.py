"""Which edge of a window crosses which tile of keys: 47."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A window over three tiles of keys: its beginning crosses the first one, its end the last one, and the one between is whole",
                 "Three tiles of 128 keys side by side, for 128 queries from top to bottom. The keys that a query sees move to the right from row to row: a band whose left edge crosses the first tile, and whose right edge crosses the last one.")
for tile, (kind, words) in enumerate((("copy", ""), ("work", "whole"), ("copy", ""))):
    DRAWING.box(40 + 104 * tile, 22, 104, 104, kind, words)
DRAWING.arrow(40, 22, 144, 126)
DRAWING.arrow(248, 22, 352, 126)
DRAWING.text(90, 46, "begins")
DRAWING.text(256, 112, "ends")
DRAWING.text(4, 14, "128 queries, from top to bottom", "label")
DRAWING.text(40, 146, "compares with", "label")
DRAWING.text(40, 162, "the beginning,", "label")
DRAWING.text(40, 178, "looks for a max", "label")
DRAWING.text(150, 146, "neither", "label")
DRAWING.text(254, 146, "compares with", "label")
DRAWING.text(254, 162, "the end", "label")
