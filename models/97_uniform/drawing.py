"""In which order a warp issues copies to its own registers and products, in 56 and here."""
from tools.site.sketch import FULL, Sketch

LEFT, PRODUCTS, COPY = 92, 6, 0.35
UNTIL = PRODUCTS * (1 + COPY)
DRAWING = Sketch("What a warp issues for the products of a tile: in 56 copies between them, here none",
                 "Two rows of instructions. Above, 56: before each of six products a copy from the lanes' registers to one of the warp. Below, 97: the six products follow each other.")
y = 12.0
for name, copies in (("56: a descriptor for each lane", True), ("97: a descriptor for the warp", False)):
    DRAWING.text(2, y, name, "name")
    spans, at = [], 0.0
    for product in range(PRODUCTS):
        if copies:
            spans.append((at, at + COPY, "waste", ""))
            at += COPY
        spans.append((at, at + 1, "work", f"k {16 * product}"))
        at += 1
    y = DRAWING.timeline(y + 8, [("a warp", spans)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Filled: wgmma. Hatched: R2UR. Their order, not their time.", "label")
