"""A warpgroup's scores: of a whole tile, which it waits for, and of half a tile, which come while it makes the others' weights."""
from tools.site.sketch import FULL, Sketch

LEFT, HALF = 66, 2  # a half tile's exponentials take as long as two products, of half a tile or of half the columns
UNTIL = 20

before: dict[str, list] = {"wgmma": [], "lanes": []}
for tile in range(3):
    at = 6 * tile
    before["wgmma"] += [(at, at + 2, "work", f"QK{tile}")]
    before["lanes"] += [(at, at + 2, "waste", ""), (at + 2, at + 4, "data", f"{tile}a"), (at + 4, at + 6, "data", f"{tile}b")]
    for half in range(2 if tile > 0 else 0):
        before["wgmma"] += [(at + 2 + 2 * half, at + 3 + 2 * half, "work", "PV")]

now: dict[str, list] = {"wgmma": [(0, 1, "work", "QK"), (1, 2, "work", "QK")], "lanes": [(0, 2, "waste", "")]}
for half in range(9):
    at = HALF * (1 + half)
    now["lanes"] += [(at, at + HALF, "data", f"{half // 2}{'ab'[half % 2]}")]
    now["wgmma"] += [(at, at + 1, "work", "QK")] if half > 0 else []
    now["wgmma"] += [(at + 1, at + 2, "work", "PV")] if half > 1 else []

DRAWING = Sketch("Before, a warpgroup waits for the scores of all 128 keys. Here the next 64 are multiplied while these become weights",
                 "Above, f02: QK of a tile, and while it runs the lanes have nothing to do; then weights of the tile's first half and of its second, beside them PV of the tile before in two halves. "
                 "Below, f03: while the lanes make weights of half a tile, QK of the next half runs, and half of PV. They wait once, at the very beginning. All lengths are invented.")
DRAWING.text(2, 12, "f02", "name")
y = DRAWING.timeline(20, list(before.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "f03", "name")
y = DRAWING.timeline(y + 22, list(now.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "Hatched: no scores yet. 2b: of tile 2, the last 64 keys.", "label")
DRAWING.text(2, y + 28, "One warpgroup alone. The lengths are invented.", "label")
