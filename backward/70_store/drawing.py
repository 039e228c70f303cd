from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A block's end in 69 and in 70",
                 "Two pairs of rows, products and what leaves, over time. 69: products of the last tiles, then a long hatched gap in which threads store dK and dV four bytes at a time. 70: products, then a short gap in which "
                 "threads store them in shared memory, and the copy engine writes them while the next block begins. Lengths are invented.")
LEFT, UNTIL = 76, 18
y = 12.0
for name, products, away in (("69: 4 bytes a lane", [(0, 3, "work", "a tile"), (3, 6, "work", "a tile"), (6, 13, "waste", ""), (13, 15, "data", "K, V"), (15, 18, "work", "a tile")],
                              [(6, 13, "copy", "dK, dV")]),
                             ("70: the engine", [(0, 3, "work", "a tile"), (3, 6, "work", "a tile"), (6, 8, "waste", ""), (8, 10, "data", "K, V"), (10, 13, "work", "a tile"), (13, 16, "work", "a tile")],
                              [(6, 7, "copy", ""), (7, 10, "copy", "dK, dV")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("leaves", away)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Hatched: nothing multiplies. Lengths are invented.", "label")
