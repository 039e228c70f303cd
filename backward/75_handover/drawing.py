from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A tile's end in 74 and 75",
                 "Two pairs of rows, products and threads over time. 74: dQ and dK, under dK the threads store dQ and wait at the fence, and only then S and dP begin. 75: dQ and dK, under dK the threads store dQ, S begins behind dK, and "
                 "the fence and the call come beside S. All lengths of time are invented.")
LEFT, UNTIL = 76, 17
y = 12.0
for name, products, threads in (
        ("74: fence, then S", [(0, 4, "work", "dQ"), (4, 7, "work", "dK"), (7, 9, "waste", ""), (9, 13, "work", "S")],
         [(4, 6, "copy", "dQ"), (6, 9, "data", "wait")]),
        ("75: S, then fence", [(0, 4, "work", "dQ"), (4, 7, "work", "dK"), (7, 7.5, "waste", ""), (7.5, 11.5, "work", "S"), (11.5, 15.5, "work", "dP")],
         [(4, 6, "copy", "dQ"), (8.5, 10.5, "data", "call")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("threads", threads)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Hatched: nothing multiplies. Lengths are invented.", "label")
