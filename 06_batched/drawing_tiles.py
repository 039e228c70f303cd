"""Two rungs at two tiles, from docs/results: which of the two changes pays."""
from tools.site.prose import h200
from tools.site.sketch import Sketch

TILES = ("64x128", "128x64")
NAMES = {("05", "64x128"): "05", ("05", "128x64"): "05[128x64, 4 warps]", ("06", "64x128"): "06[64x128, 4 warps]", ("06", "128x64"): "06"}
OF_FA2 = {place: h200(name).vs_fa2 for place, name in NAMES.items()}
ORDERS = {"05": ("05: a load for", "each group"), "06": ("06: a load for", "all groups")}

DRAWING = Sketch("The order of the loops and the tile, one by one: rates as shares of FlashAttention-2's",
                 " ".join(f"{rung} at {tile}: {value:.3f}." for (rung, tile), value in OF_FA2.items()) + " Along a row the tile changes, down a column the order of the loops.")
X, Y, WIDE, TALL = 124, 30, 116, 44
for column, tile in enumerate(TILES):
    DRAWING.text(X + column * (WIDE + 8) + WIDE / 2, 18, f"tile {tile}", "label", "middle")
    for row, (rung, words) in enumerate(ORDERS.items()):
        value, default = OF_FA2[rung, tile], (rung, tile) in (("05", TILES[0]), ("06", TILES[1]))
        DRAWING.box(X + column * (WIDE + 8), Y + row * (TALL + 8), WIDE, TALL, "work" if tile == TILES[1] else "data", f"{value:.3f}", default)
for row, words in enumerate(ORDERS.values()):
    for i, line in enumerate(words):
        DRAWING.text(2, Y + row * (TALL + 8) + 18 + 14 * i, line, "label")
DRAWING.text(2, Y + 2 * TALL + 30, "Outlined: the defaults of 05 and of 06.", "label")
