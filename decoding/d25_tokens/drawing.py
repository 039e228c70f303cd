"""Why a row's maximum is one of weights and V's scales together: what of two keys goes to f16, by either."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A weight times a scale of V, below the maximum of weights and below that of both",
                 "Key a has the row's largest score, and values with a scale of two to the minus 14; key b scores twelve powers of two less, and its values have a scale of two to the 15. Relative to the largest score the products are two to the minus 14 and two to the 3, and a third key could leave f16's range above. Relative to the largest product they are two to the minus 10 and two to the 7: the largest is always there.")
TOP, TALL, STEP = 40, 22, 30
for left, words in ((4, "key"), (44, "weight"), (112, "V's scale"), (190, "P: weight maximum"), (300, "of both")):
    DRAWING.text(left, 14, words, "label")
for row, (key, weight, scale, alone, both) in enumerate((("a", 0, -14, -14, -10), ("b", -12, 15, 3, 7))):
    y = TOP - 18 + row * STEP
    DRAWING.box(4, y, 30, TALL, "empty", key)
    for left, wide, kind, power in ((44, 60, "data", weight), (112, 60, "data", scale), (190, 60, "waste" if row == 0 else "copy", alone), (300, 60, "work", both)):
        DRAWING.box(left, y, wide, TALL, kind, f"2^{power}")
DRAWING.text(4, 96, "f16 has 11 bits from 2^-14 up, and ends at 2^16", "label")
