"""The worked example of docs/softmax.md: four scores in two tiles, and what the running numbers are after each."""
from math import exp

from tools.site.sketch import FULL, Sketch

SCORES = ((1, 3), (2, 5))
TALL, WIDE, BASE = 78.0, 34.0, 128.0

steps, seen, m, total = [], [], float("-inf"), 0.0
for tile in SCORES:
    new_max = max(m, *tile)
    correction = exp(m - new_max)
    seen += tile
    m, total = new_max, total * correction + sum(exp(s - new_max) for s in tile)
    steps.append((m, correction, [exp(s - m) for s in seen], total))

DRAWING = Sketch("A maximum that grows makes all earlier weights smaller by one factor: scores 1, 3 and then 2, 5",
                 " ".join(f"After tile {i}: maximum {m:g}, weights {', '.join(f'{w:.3f}' for w in weights)}, sum {total:.3f}."
                          for i, (m, _, weights, total) in enumerate(steps, 1))
                 + f" Between them the earlier weights and their sum were multiplied by {steps[1][1]:.3f}.")
x = 3.0
for i, (m, correction, weights, total) in enumerate(steps):
    DRAWING.text(x, 12, f"tile {i + 1}: m = {m:g}", "name")
    for j, weight in enumerate(weights):
        old = j < 2 * i
        DRAWING.box(x + j * (WIDE + 4), BASE - weight * TALL, WIDE, weight * TALL, "data" if old else "work")
        DRAWING.text(x + j * (WIDE + 4) + WIDE / 2, BASE - weight * TALL - 5, f"{weight:.3f}", "label", "middle")
        DRAWING.text(x + j * (WIDE + 4) + WIDE / 2, BASE + 13, f"s={seen[j]}", "label", "middle")
    DRAWING.text(x, BASE + 34, f"l = {total:.3f}")
    x += 214.0
DRAWING.arrow(96, 74, 196, 74)
DRAWING.text(146, 66, "all earlier:", "label", "middle")
DRAWING.text(146, 90, f"x e^({steps[0][0]:g}-{steps[1][0]:g}) = {steps[1][1]:.3f}", "label", "middle")
DRAWING.line(2, BASE, FULL - 2, BASE)
