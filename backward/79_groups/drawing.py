from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Clocks that a tile of 64 queries and 128 keys takes of shared memory, in 78 and 79, and of the tensor cores",
                 "Bars of passes over the banks, for 64 queries and 128 keys. 78: 5760 for operands and 384 for dS, LSE and D. 79: 3584 for operands, 768 for P, dS, LSE and D. Below, as long as mma.sync needs for the products: 3900 clocks.")
X, SCALE, y = 66.0, (FULL - 68) / 6400, 24.0
DRAWING.text(X, 14, "shared memory, 128 B a clock", "label")
for name, parts in (("78", ((5760, "work", "operands"), (384, "data", ""))), ("79", ((3584, "work", "operands"), (768, "data", "P, dS")))):
    DRAWING.text(2, y + 14, name, "name")
    left = X
    for clocks, kind, words in parts:
        DRAWING.box(left, y, clocks * SCALE, 20, kind, words)
        left += clocks * SCALE
    y += 30
DRAWING.text(X, y + 10, "tensor cores", "label")
y += 16
DRAWING.text(2, y + 14, "both", "name")
DRAWING.box(X, y, 3900 * SCALE, 20, "copy", "mma.sync, 3900 clocks")
DRAWING.text(2, y + 40, "For 64 queries and 128 keys, on one SM.", "label")
