"""Which tiles a window leaves: 43's Schedule, drawn to scale."""
from tools.site.sketch import Sketch

N, LEFT, TILE = 1152, 256, 128
TILES = N // TILE
first_of = lambda query: max(query - LEFT, 0)  # as in kernel.cuh, where there are as many keys as queries
end_of = lambda query: query + 1
begin = lambda tile: first_of(tile * TILE) // TILE
end = lambda tile: -(-end_of(tile * TILE + TILE - 1) // TILE)
whole_begin = lambda tile: first_of(tile * TILE + TILE - 1) // TILE + 1
whole_end = lambda tile: end_of(tile * TILE) // TILE


def kind(tile: int, column: int) -> str:
    if not begin(tile) <= column < end(tile):
        return "empty"
    return "work" if whole_begin(tile) <= column < whole_end(tile) else "copy"


assert {end(tile) - begin(tile) for tile in range(2, TILES)} == {3}

DRAWING = Sketch(f"{TILES} tiles of queries in a window of {LEFT}: each has three tiles of keys, of which the window's edges cross two",
                 f"Nine tiles of queries and of keys, each of {TILE}. Only three tiles of keys on and before the diagonal are visited for each tile of queries. The middle one is seen whole; the first and the last are masked.")
X, Y, UNIT = 64, 34, 24
at = lambda key, query: (X + key / TILE * UNIT, Y + query / TILE * UNIT)
DRAWING.text(X, 12, f"{N} keys", "label")
DRAWING.text(X - 8, Y + 14, f"{N}", "label", "end")
DRAWING.text(X - 8, Y + 28, "queries", "label", "end")
DRAWING.grid(X, Y, TILES * UNIT, TILES * UNIT, TILES, TILES, kind, picked=lambda row, column: kind(row, column) == "copy")
DRAWING.line(*at(0, 0), *at(N, N))
DRAWING.line(*at(0, LEFT), *at(N - LEFT, N))
for i, (shade, words) in enumerate((("work", "whole"), ("copy", "masked"), ("empty", "skipped"))):
    DRAWING.box(306, 44 + 44 * i, 26, 18, shade, "", shade == "copy")
    DRAWING.text(306, 76 + 44 * i, words, "label")
