from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A tile's end in 65, 66 and 69",
                 "Three pairs of rows, products and threads over time. 65: dK, dQ, then nothing while dQ is stored, then S. 66: dK, dQ, S, and dQ is stored under S. 69: dQ, dK, and dQ is stored under dK, then S. All lengths of "
                 "time are invented.")
LEFT, UNTIL = 76, 18
y = 12.0
for name, products, away in (("65: dQ last", [(0, 4, "work", "dK"), (4, 8, "work", "dQ"), (8, 11, "waste", ""), (11, 15, "work", "S")], (8, 11)),
                             ("66: S behind dQ", [(0, 4, "work", "dK"), (4, 8, "work", "dQ"), (8, 12, "work", "S")], (8, 11)),
                             ("69: dK behind dQ", [(0, 4, "work", "dQ"), (4, 8, "work", "dK"), (8, 12, "work", "S")], (4, 7))):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("threads", [(*away, "copy", "dQ")])], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Hatched: nothing multiplies. Lengths are invented.", "label")
