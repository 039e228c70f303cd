from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Who adds which half of which tile: two threads in 80, three in 81",
                 "Rows of threads over time. 80: two threads, each adds its half of every tile, and one addition with its waits takes longer than a tile's products, so the products wait, hatched. 81: three threads, each takes every third "
                 "half, and the products follow each other without a gap. Lengths of time are invented.")
LEFT, UNTIL, TILE, ADD = 76, 26.0, 4.0, 5.2
y = 12.0
for name, threads, period in (("80: two threads", 2, ADD), ("81: three threads", 3, TILE)):
    products, rows = [], [[] for _ in range(threads)]
    for tile in range(4):
        products.append((tile * period, tile * period + TILE, "work", f"tile {tile}"))
        if period > TILE and tile < 3:
            products.append((tile * period + TILE, (tile + 1) * period, "waste", ""))
        for half in range(2):
            row = rows[(2 * tile + half) % threads]
            begin = max(tile * period + TILE - 0.8 + half * 0.4, row[-1][1] if row else 0)
            row.append((begin, min(begin + ADD - 0.3, UNTIL), "copy", f"{tile}, {'ab'[half]}"))
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), *((f"adds {i}", row) for i, row in enumerate(rows))], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "0, a: the first half of tile 0. Lengths are invented.", "label")
