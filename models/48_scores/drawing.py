"""What becomes of a score before the softmax: 48."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A score passes through the function before the mask and the maximum; the sink stands before the first tile of keys",
                 "From left to right: a product of a query and a key, the function with its two parts cap and slope, the mask, the softmax. A sink goes into the softmax by itself, before the first tile.")
for i, (kind, words) in enumerate((("work", "Q K"), ("copy", "function"), ("copy", "mask"), ("work", "softmax"))):
    DRAWING.box(4 + 94 * i, 26, 76, 34, kind, words)
    if i < 3:
        DRAWING.arrow(82 + 94 * i, 43, 96 + 94 * i, 43)
DRAWING.text(98, 82, "cap, slope", "label")
DRAWING.text(192, 82, "-infinity", "label")
DRAWING.box(286, 100, 76, 30, "copy", "sink")
DRAWING.arrow(324, 98, 324, 64)
DRAWING.text(150, 120, "before the first tile", "label")
