from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Copies and products of three tiles, in 77 and 78",
                 "Two pairs of rows, copies and products over time. 77: a tile is copied, then multiplied, then the next is copied. 78: while tile 0 is multiplied, tile 1 is copied into the other place; nothing waits but the first "
                 "product. All lengths of time are invented.")
LEFT, UNTIL = 66, 21
y = 12.0
for name, copies, products in (
        ("77: in turns", [(0, 2, "copy", "0"), (7, 9, "copy", "1"), (14, 16, "copy", "2")],
         [(2, 7, "work", "tile 0"), (7, 9, "waste", ""), (9, 14, "work", "tile 1"), (14, 16, "waste", ""), (16, 21, "work", "tile 2")]),
        ("78: one ahead", [(0, 2, "copy", "0"), (2, 4, "copy", "1"), (7, 9, "copy", "2")],
         [(2, 7, "work", "tile 0"), (7, 12, "work", "tile 1"), (12, 17, "work", "tile 2")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("copies", copies), ("products", products)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Hatched: nothing multiplies. Lengths are invented.", "label")
