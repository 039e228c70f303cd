import struct

from tools.site.sketch import Sketch

THRESHOLD = 8.0
SCORES = (-7.5, -0.25, 0.0, 3.0, 9.0)  # relative to the old maximum, in log2 units


def as_integer(value: float) -> int:
    return struct.unpack("<i", struct.pack("<f", value))[0]


largest = max([0] + [as_integer(score) for score in SCORES])
assert largest == as_integer(max(SCORES)) and (largest > as_integer(THRESHOLD)) == (max(SCORES) > THRESHOLD)

DRAWING = Sketch("Scores that come out relative to the old maximum: only a positive one can have outgrown it",
                 "A number line. The old maximum is at 0, the threshold at 8. Scores " + ", ".join(f"{score:g}" for score in SCORES) + " stand on it; as integers the negative ones are below 0, and the positive "
                 "ones keep their order, so one integer maximum that begins at 0 finds 9, and 9 is above the threshold.")
at = DRAWING.number_line(70, -9, 11, ((0, "0"), (THRESHOLD, "8")))
DRAWING.box(at(-9), 34, at(0) - at(-9), 22, "data", "negative integers")
DRAWING.box(at(0), 34, at(8) - at(0), 22, "copy", "weight <= 256")
DRAWING.box(at(8), 34, at(11) - at(8), 22, "waste", "")
DRAWING.text(at(0), 26, "old maximum", "label", "middle")
DRAWING.text(at(9.4), 26, "rescale", "label", "middle")
for score in SCORES:
    DRAWING.box(at(score) - 3, 66, 6, 8, "work", "", score == max(SCORES))
DRAWING.text(2, 114, "S - max, from the product itself", "label")
for i, score in enumerate(SCORES):
    x = 2 + 73 * i
    DRAWING.box(x, 124, 72, 34, "work" if score == max(SCORES) else "empty", f"{score:g}\n{as_integer(score) / 2**30:.2f}", score == max(SCORES))
DRAWING.text(2, 174, "below: the same bits as an integer, in units of 2^30", "label")
