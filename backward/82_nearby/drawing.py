"""The band of a window, and the walks of blocks of keys through it."""
from tools.site.sketch import Sketch

N, LEFT, KEYS, QUERIES = 1024, 256, 128, 64  # as in kernel.cuh: BC keys a block, BR queries a tile
first_tile = lambda key: key // QUERIES
end_tile = lambda key: min(key + KEYS - 1 + LEFT + 1, N) // QUERIES

DRAWING = Sketch("Keys to the right, queries downwards: the band of a window, and the walk of each block of keys through it",
                 "A square of 1024 keys and 1024 queries. A band below the diagonal, 256 queries high, is what a window leaves. Eight blocks of 128 keys stand side by side; of each the tiles of 64 queries of its walk are shaded: six, and fewer in the last two blocks. "
                 "Without a window each walk would go on to the bottom.")
X, Y, UNIT = 70, 34, 26
at = lambda key, query: (X + key / KEYS * UNIT, Y + query / KEYS * UNIT)
DRAWING.text(X, 12, f"{N} keys", "label")
DRAWING.text(X - 8, Y + 14, f"{N}", "label", "end")
DRAWING.text(X - 8, Y + 28, "queries", "label", "end")
for block in range(N // KEYS):
    first, end = first_tile(block * KEYS), end_tile(block * KEYS)
    for tile in range(N // QUERIES):
        x, y = at(block * KEYS, tile * QUERIES)
        kind = "empty" if tile < first else "waste" if tile >= end else "work"
        DRAWING.box(x, y, UNIT, UNIT / 2, kind)
DRAWING.line(*at(0, 0), *at(N, N))
DRAWING.line(*at(0, LEFT), *at(N - LEFT, N))
for i, (shade, words) in enumerate((("work", "walk"), ("empty", "before it"), ("waste", "no more"))):
    DRAWING.box(300, 44 + 44 * i, 26, 18, shade)
    DRAWING.text(300, 76 + 44 * i, words, "label")
