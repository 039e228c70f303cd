from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Where LSE and D come in, in 71 and 74",
                 "Two pairs of rows, products and threads over time. 71: S and dP, behind S the threads load LSE and then compute exponentials, behind dP they load D and then make dS. 74: the threads load both before S begins, and then "
                 "compute exponentials and dS without loads. All lengths of time are invented.")
LEFT, UNTIL = 76, 17
y = 12.0
for name, products, threads in (
        ("71: zeros first", [(0, 4, "work", "S"), (4, 8, "work", "dP"), (10, 14, "work", "dV")],
         [(4, 5.5, "copy", "LSE"), (5.5, 10, "data", "exp"), (10, 11.5, "copy", "D"), (11.5, 14, "data", "dS")]),
        ("74: -LSE and -D first", [(1, 5, "work", "S"), (5, 9, "work", "dP"), (9.5, 13.5, "work", "dV")],
         [(0, 1, "copy", ""), (5, 9.5, "data", "exp"), (9.5, 12, "data", "dS")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("threads", threads)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Lengths are invented.", "label")
