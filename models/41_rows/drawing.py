"""Which tiles are visited and which masked where neither length is a multiple of a tile: 41's Schedule, drawn to scale."""
from tools.site.sketch import Sketch

N_Q, N_K, TILE = 300, 420, 128
UP = lambda rows: -(-rows // TILE)
keys_of = lambda query: query + 1 + N_K - N_Q  # as in kernel.cuh
whole = lambda q_tile: keys_of(q_tile * TILE) // TILE
end = lambda q_tile: UP(keys_of(min((q_tile + 1) * TILE, N_Q) - 1))
kind = lambda row, column: "work" if column < whole(row) else "copy" if column < end(row) else "empty"
MASKED = {end(row) - whole(row) for row in range(UP(N_Q))}
assert MASKED == {2}

DRAWING = Sketch(f"{N_Q} queries and {N_K} keys under a mask: which tiles are seen whole, which are masked, which are not visited; the diagonal crosses two tiles in each row",
                 f"Three tiles of queries and four of keys, each of {TILE}. The diagonal ends at the last query and the last key. Left of it a tile is seen whole; the two that it crosses are masked; those right of it are not "
                 f"visited. The tensors end, dashed, inside the last tiles: what lies behind {N_Q} queries and {N_K} keys the copy engine fills with zeros.")
X, Y, UNIT = 64, 34, 58
at = lambda key, query: (X + key / TILE * UNIT, Y + query / TILE * UNIT)
DRAWING.text(X, 12, f"{N_K} keys", "label")
DRAWING.text(X - 8, Y + 24, f"{N_Q}", "label", "end")
DRAWING.text(X - 8, Y + 38, "queries", "label", "end")
DRAWING.grid(X, Y, UP(N_K) * UNIT, UP(N_Q) * UNIT, UP(N_Q), UP(N_K), kind, picked=lambda row, column: kind(row, column) == "copy")
DRAWING.line(*at(keys_of(0), 0), *at(N_K, N_Q))
DRAWING.line(*at(N_K, -16), *at(N_K, UP(N_Q) * TILE + 16), "dashed")
DRAWING.line(*at(-10, N_Q), *at(UP(N_K) * TILE + 16, N_Q), "dashed")
for i, (shade, words) in enumerate((("work", "whole"), ("copy", "masked"), ("empty", "skipped"))):
    DRAWING.box(306, 44 + 44 * i, 26, 18, shade, "", shade == "copy")
    DRAWING.text(306, 76 + 44 * i, words, "label")
DRAWING.text(2, Y + UP(N_Q) * UNIT + 24, "Dashed: the tensors end. Behind it the engine reads zeros.", "label")
