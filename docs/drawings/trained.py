"""Where a query's weight lies in a trained model, layer by layer: means over four heads of tools/trained/heads.csv."""
import csv

from tools.rungs import root
from tools.site.sketch import FULL, Sketch

with open(root() / "tools/trained/heads.csv", encoding="utf-8", newline="") as file:
    HEADS = list(csv.DictReader(file))


def mean(layer: int, column: str) -> float:
    values = [float(row[column]) for row in HEADS if row["layer"] == str(layer)]
    return sum(values) / len(values)


ROWS = []
for layer in range(1, 5):
    near, tile = mean(layer, "near 16"), mean(layer, "near 128")
    ROWS.append((f"layer {layer}", [(0, near, "work", f"{100 * near:.0f} %"), (near, tile, "data", f"{100 * (tile - near):.0f}"),
                                    (tile, 1, "empty", f"{100 * (1 - tile):.0f}" if tile < 0.93 else "")]))
DRAWING = Sketch("Where a query's weight lies in a small trained model: among the nearest 16 keys, the 112 before them, all others",
                 "Four bars, one for each layer, from the nearest keys to the farthest. " +
                 " ".join(f"Layer {layer}: {100 * mean(layer, 'near 16'):.0f} % among the nearest 16, {100 * mean(layer, 'near 128'):.0f} % among the nearest 128." for layer in range(1, 5)))
DRAWING.text(2, 12, "A query's weight, from its own key backwards.", "label")
y = DRAWING.timeline(20, ROWS, 62, FULL - 2, 1.0)
DRAWING.text(2, y + 12, "Dark: the nearest 16 keys, then 112 more, then the rest.", "label")
