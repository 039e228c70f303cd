"""Shares of lengths of their own, dealt out by where they begin."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Shares of lengths of their own in a list, dealt out by where they begin",
                 "A list of the shares of three sequences, of three different lengths. Lines cut it into four equal parts. A block takes the shares that begin in its part, so its end is that of a share.")
DRAWING.text(4, 14, "the list: shares of A, B and C, and equal parts of it", "label")
left, kinds = 4, []
for name, count, length in (("A", 8, 24), ("B", 6, 10), ("C", 4, 6)):
    for _ in range(count):
        kinds.append((left, length, name))
        DRAWING.box(left, 22, length - 1, 20, "work", name if length > 8 else "")
        left += length
for part in range(1, 4):
    at = 4 + (left - 4) * part // 4
    DRAWING.line(at, 18, at, 48)
DRAWING.text(4, 66, "who takes which", "label")
for at, length, name in kinds:
    DRAWING.text(at + length / 2 - 3, 80, str(4 * (at - 4) // (left - 4)), "label") if length > 8 else None
