from math import exp

from tools.site.sketch import Sketch

SCORES = (1, 3, 2, 5)  # those of docs/softmax.md, a key at a time
ROWS = ("score", "max so far", "correction", "weight", "sum so far")

columns, row_max, row_sum = [], float("-inf"), 0.0
for score in SCORES:
    new_max = max(row_max, score)
    correction, weight = exp(row_max - new_max), exp(score - new_max)
    row_max, row_sum = new_max, row_sum * correction + weight
    columns.append((f"{score}", f"{row_max}", *(f"{value:.3g}" if value in (0, 1) else f"{value:.3f}" for value in (correction, weight, row_sum))))
assert abs(row_sum - sum(exp(score - max(SCORES)) for score in SCORES)) < 1e-12  # what two walks would give

DRAWING = Sketch("One walk over four keys: a larger maximum corrects what has been summed",
                 " ".join(f"Key {i}: " + ", ".join(f"{name} {value}" for name, value in zip(ROWS, column)) + "." for i, column in enumerate(columns))
                 + " The sum at the end is the one that a walk with the known maximum gives.")
LEFT, WIDE, TALL = 90, 65, 24
for i, name in enumerate(ROWS):
    DRAWING.text(LEFT - 8, 40 + i * TALL, name, "name" if name == "correction" else "", "end")
for key, column in enumerate(columns):
    x = LEFT + key * (WIDE + 4)
    DRAWING.text(x + WIDE / 2, 14, f"key {key}", "label", "middle")
    for i, value in enumerate(column):
        grown = key > 0 and float(column[2]) < 1
        kind = "data" if i == 0 else "work" if i == 2 and grown else "empty"
        DRAWING.box(x, 24 + i * TALL, WIDE, TALL, kind, value, i == 2 and grown)
DRAWING.text(8, 164, "O follows the sum: O = O * correction + weight * v", "label")
