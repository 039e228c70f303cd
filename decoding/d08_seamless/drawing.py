"""A ring that runs empty at a head's end, and one that goes on."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A ring that runs empty at each head's end, and one that goes on",
                 "Above, d07: the copies of head A, then a gap in which its products end and it is joined, then the copies of head B. Below, d08: the copies of B follow those of A at once, while A is multiplied and joined.")
for row, (name, gap) in enumerate((("d07", 74), ("d08", 0))):
    top = 20 + 84 * row
    DRAWING.text(4, top - 6, f"{name}: copies", "label")
    for tile in range(3):
        DRAWING.box(4 + 40 * tile, top, 38, 20, "copy", "A")
        DRAWING.box(4 + 40 * (tile + 3) + gap, top, 38, 20, "copy", "B")
    DRAWING.text(4, top + 34, "products", "label")
    for tile in range(3):
        DRAWING.box(44 + 40 * tile, top + 40, 38, 20, "work", "A")
        DRAWING.box(44 + 40 * (tile + 3) + max(gap, 12), top + 40, 38, 20, "work", "B")
