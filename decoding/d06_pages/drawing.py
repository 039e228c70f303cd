"""Keys of a sequence behind each other, or in pages that a table finds."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A sequence's keys lie in pages anywhere in the cache, and a table says where",
                 "Above, room for three sequences as long as the longest, of which two are mostly empty. Below, one row of pages without gaps; a table with three rows points into it.")
DRAWING.text(4, 14, "room for each", "label")
for row, used in enumerate((150, 40, 64)):
    DRAWING.box(4, 22 + 26 * row, used, 20, "work", "ABC"[row])
    if used < 150:
        DRAWING.box(4 + used, 22 + 26 * row, 150 - used, 20, "waste", "")
DRAWING.text(190, 14, "pages", "label")
for place, name in enumerate(("A1", "C0", "A0", "B0", "A2", "C1")):
    DRAWING.box(190 + 29 * place, 22, 27, 20, "work", name)
DRAWING.text(190, 66, "table", "label")
DRAWING.text(190, 84, "A: 2 0 4    B: 3    C: 1 5", "label")
