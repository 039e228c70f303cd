"""The shares of work of a head of five tiles of queries under a mask, in 99, and of two such heads, here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 62, 6
DRAWING = Sketch("Shares of a head with five tiles, before and now",
                 "Two groups of bars, as long as a share of work takes, in tiles of keys. Above, 99: the three shares of one head, five and one, four and two, and three alone, which is half as long. "
                 "Below, m01: the five shares of two heads, all of six: five and one, four and two, three of the first head and three of the second, five and one, four and two.")
FIRST, SECOND = "work", "data"
y = 12.0
for name, shares in (("99: one head", (((5, FIRST), (1, FIRST)), ((4, FIRST), (2, FIRST)), ((3, FIRST),))),
                     ("m01: two heads together", (((5, FIRST), (1, FIRST)), ((4, FIRST), (2, FIRST)), ((3, FIRST), (3, SECOND)),
                                                  ((5, SECOND), (1, SECOND)), ((4, SECOND), (2, SECOND))))):
    DRAWING.text(2, y, name, "name")
    lanes = []
    for number, tiles in enumerate(shares):
        ends = [sum(tile for tile, _ in tiles[:i + 1]) for i in range(len(tiles))]
        lanes.append((f"share {number}", [(end - tile, end, kind, str(tile)) for (tile, kind), end in zip(tiles, ends)]))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "A box is a tile of queries, its number the tiles of keys", "label")
DRAWING.text(2, y + 9, "that it sees. Dark: the first head. Light: the second.", "label")
