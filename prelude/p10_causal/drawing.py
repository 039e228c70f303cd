from tools.site.sketch import Sketch

BR = BC = 64
BLOCKS = 8


def kind(block: int, tile: int) -> str:
    kv_tiles = (block * BR + BR - 1) // BC + 1  # as in kernel.cuh
    return "waste" if tile >= kv_tiles else "copy" if tile == kv_tiles - 1 else "work"


COMPUTED = sum(kind(block, tile) != "waste" for block in range(BLOCKS) for tile in range(BLOCKS))
DRAWING = Sketch(f"Which tiles of the scores a causal mask leaves: {COMPUTED} of {BLOCKS * BLOCKS} at n = {BLOCKS * BR}",
                 f"A square of {BLOCKS} blocks of queries and {BLOCKS} tiles of keys. Block b visits tiles 0 to b. The last of them, on the diagonal, is masked. Those right of it are "
                 "hatched: they are not visited. So the blocks' work grows from one tile to eight, like stairs.")
UNIT, X, Y = 26, 84, 30
DRAWING.text(X, 12, "tiles of keys", "label")
DRAWING.grid(X, 20, BLOCKS * UNIT, BLOCKS * 22, BLOCKS, BLOCKS, kind, picked=lambda row, column: kind(row, column) == "copy")
for block in range(BLOCKS):
    DRAWING.text(X - 6, 20 + block * 22 + 15, f"block {block}", "label", "end")
for i, (name, words) in enumerate((("work", "all seen"), ("copy", "masked"), ("waste", "skipped"))):
    DRAWING.box(300, 30 + 44 * i, 26, 18, name, "", name == "copy")
    DRAWING.text(300, 62 + 44 * i, words, "label")
