from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Of one half of a tile, the products and the turn: d = 128 and d = 64",
                 "Two pairs of rows over time. d = 128: the products of a tile, and below them its turn, which is an addition and the way to the next block; there is room. d = 64: the products take half as long, the addition half as long, and the way as long as before, so it fills the tile. "
                 "Lengths of time are invented.")
LEFT, UNTIL = 76, 8
y = 12.0
for name, products, addition in (("87: d = 128", 4, 1.2), ("88: d = 64", 2, 0.6)):
    begins = range(0, UNTIL, products)
    tiles = [(begin, begin + products, "work", f"tile {begin // products + 1}") for begin in begins]
    turns = [bar for begin in begins for bar in ((begin, begin + addition, "copy", "add"), (begin + addition, begin + addition + 1.3, "data", "pass on"))]
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", tiles), ("turn", turns)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Passed on is a count in memory. Lengths are invented.", "label")
