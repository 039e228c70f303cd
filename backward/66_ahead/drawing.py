from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A tile's end in 65 and in 66",
                 "Two rows of bars over time. 65: the tensor cores do dQ, stand still while dQ is stored, then do S and dP; the exponentials begin after S. 66: dQ, S and dP follow each other; dQ is stored under S, and "
                 "the exponentials begin with dP. All lengths of time are invented.")
LEFT, UNTIL = 76, 20
DRAWING.text(2, 12, "65: first dQ away, then S", "name")
y = DRAWING.timeline(20, [("products", [(0, 4, "work", "dQ"), (4, 7, "waste", ""), (7, 11, "work", "S"), (11, 15, "work", "dP"), (15, 17, "waste", ""), (17, 20, "work", "dV")]),
                          ("threads", [(4, 7, "copy", "dQ"), (11, 17, "data", "exponentials")])], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 16, "66: S behind dQ", "name")
y = DRAWING.timeline(y + 24, [("products", [(0, 4, "work", "dQ"), (4, 8, "work", "S"), (8, 12, "work", "dP"), (12, 14, "waste", ""), (14, 18, "work", "dV")]),
                              ("threads", [(4, 7, "copy", "dQ"), (8, 14, "data", "exponentials")])], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 12, "Hatched: nothing multiplies. Lengths are invented.", "label")
