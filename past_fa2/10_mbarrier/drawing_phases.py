"""One barrier over time: its phases, the parity that each wait names, and a wait that comes two phases late."""
from tools.site.sketch import FULL, Sketch

SLOTS, TILES = 2, (0, 2, 4, 6)  # those of slot 0
DRAWING = Sketch("`full` of slot 0 over time: a tile is a phase, and a wait names its parity alone".replace("`", ""),
                 " ".join(f"Tile {tile} is phase {tile // SLOTS}, parity {tile // SLOTS % 2}." for tile in TILES)
                 + " A thread that waits for tile 0 names parity 0. It goes on when phase 0 completes, and goes on at once while phase 1 is under way. In phase 2 the parity at hand is 0 again: it would wait for a phase that is not its own.")
x, wide = 66.0, (FULL - 68) / len(TILES)
for row, name in enumerate(("tile", "phase", "parity")):
    DRAWING.text(x - 6, 15 + 22 * row, name, "", "end")
for i, tile in enumerate(TILES):
    DRAWING.box(x + i * wide, 3, wide, 18, "copy", f"{tile}")
    DRAWING.box(x + i * wide, 25, wide, 18, "data", f"{tile // SLOTS}")
    DRAWING.box(x + i * wide, 47, wide, 18, "work" if tile // SLOTS % 2 == 0 else "empty", f"{tile // SLOTS % 2}")
DRAWING.text(2, 88, "A thread asks for tile 0: is parity 0 over?", "name")
for i, (says, kind) in enumerate((("it waits", "data"), ("goes on", "work"), ("it waits!", "waste"), ("goes on", "empty"))):
    DRAWING.box(x + i * wide, 96, wide, 18, kind, says)
DRAWING.text(2, 131, "In phase 2 it waits for the wrong phase. So no phase may", "label")
DRAWING.text(2, 144, "complete before every wait for the one before is over.", "label")
