"""Where sequences lie among the rows of all, and where their tiles lie in the workspace."""
from tools.site.sketch import FULL, Sketch

BR, LENGTHS = 64, (37, 150, 0, 100)
begins = [sum(LENGTHS[:s]) for s in range(len(LENGTHS) + 1)]
first = [begin // BR + s for s, begin in enumerate(begins)]  # as first_tile_of, and behind the last one all tiles
used = [-(-n // BR) for n in LENGTHS]
assert all(a + n <= b for a, n, b in zip(first, used, first[1:]))

DRAWING = Sketch(f"Sequences of {', '.join(map(str, LENGTHS))} rows among all rows, and their tiles of {BR} in the workspace: none is shared",
                 f"Above, the rows of all sequences, one behind the other, with a line at each multiple of {BR}. Below, {first[-1]} tiles of {BR} rows. A sequence's first tile is its first row divided by {BR}, rounded down, plus its number: "
                 f"{', '.join(map(str, first[:-1]))}. Tiles are filled from their beginning, and some stay empty.")
LEFT, WIDE = 4.0, FULL - 8
ROW = WIDE / (first[-1] * BR)
DRAWING.text(LEFT, 14, "rows of all sequences", "name")
for s, n in enumerate(LENGTHS):
    if n:
        DRAWING.box(LEFT + begins[s] * ROW, 24, n * ROW, 26, "data" if s % 2 else "copy", str(n))
for multiple in range(0, begins[-1] + 1, BR):
    DRAWING.line(LEFT + multiple * ROW, 52, LEFT + multiple * ROW, 60)
DRAWING.text(LEFT, 74, f"a mark at each multiple of {BR}", "label")
TOP, TALL = 124, 26
DRAWING.text(LEFT, TOP - 10, "their tiles in the workspace", "name")
for tile in range(first[-1]):
    s = max(s for s in range(len(LENGTHS)) if first[s] <= tile)
    rows = min(max(LENGTHS[s] - (tile - first[s]) * BR, 0), BR)
    x = LEFT + tile * BR * ROW
    if rows:
        DRAWING.box(x, TOP, rows * ROW, TALL, "data" if s % 2 else "copy", str(rows))
    if rows < BR:
        DRAWING.box(x + rows * ROW, TOP, (BR - rows) * ROW, TALL, "waste")
    DRAWING.text(x + BR * ROW / 2, TOP + TALL + 14, str(tile), "label", "middle")
DRAWING.text(LEFT, TOP + TALL + 34, "A first tile: row / 64 + number of the sequence.", "label")
