from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("What tensor cores and exponentials do during a tile, in 86 and in 84",
                 "Two pairs of rows over time. 86: S, then under the exponentials dP alone, then dV and dQ of the tile before, while dS is made, then dK with nothing beside it. 84: S, then dQ and dK of the tile before and dP under the exponentials, then dV. Lengths are those of the products and "
                 "exponentials of 128 queries, in units of 512 clocks, without any wait.")
LEFT, UNTIL = 76, 9
y = 12.0
for name, products, threads in (
        ("86", [(0, 1, "work", "S"), (1, 2, "work", "dP"), (2, 3, "waste", ""), (3, 4, "work", "dV"), (4, 5, "copy", "dQ", True), (5, 6, "work", "dK")],
         [(1, 3, "data", "2^S"), (3, 3.8, "data", "dS")]),
        ("84", [(0, 1, "work", "S"), (1, 2, "copy", "dQ", True), (2, 3, "copy", "dK", True), (3, 4, "work", "dP"), (4, 5, "work", "dV")],
         [(1, 3.9, "data", "2^S"), (4, 4.8, "data", "dS")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("threads", threads)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Outlined: of the tile before. Hatched: nothing multiplies.", "label")
