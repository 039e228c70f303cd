"""A tile of queries and the keys that its rows see: 58."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Of a tile of queries the least and the greatest first key and end say which tiles of keys are skipped, masked or whole",
                 "Rows of a tile of queries, each with a bar from its first key to its end, over tiles of keys. Tiles before all bars and behind them are skipped, those in which a bar begins or ends are masked, those that all bars cross are whole.")
LEFT, WIDTH = 52, 52
rows = ((1.3, 4.2), (1.3, 4.4), (1.3, 4.6), (1.8, 4.8), (1.8, 4.9))
DRAWING.text(2, 10, "tiles of keys, and rows of queries over them", "label")
for i, (kind, words) in enumerate((("waste", "skip"), ("copy", "mask"), ("work", "whole"), ("work", "whole"), ("copy", "mask"), ("waste", "skip"))):
    DRAWING.box(LEFT + WIDTH * i, 18, WIDTH - 2, 24, kind, words)
for i, (first, end) in enumerate(rows):
    DRAWING.box(LEFT + WIDTH * first, 50 + 12 * i, WIDTH * (end - first), 8, "work", "")
DRAWING.text(LEFT + WIDTH * 1.3, 124, "least first", "label")
DRAWING.text(LEFT + WIDTH * 4.4, 124, "greatest end", "label")
