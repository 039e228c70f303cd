"""Two lines from 71, and the rung that has both: what it takes downwards, how its walk goes to the right."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("What a rung takes, and how it walks: 71, 73, 75 and 76 in the corners of a square",
                 "Four boxes in a square. Above left 71, above right 75, below left 73, below right 76. Arrows from 71 to the right to 75: S and dP begin with -LSE and -D, and dQ is called for later. Arrows from 71 down to 73: bf16, any "
                 "lengths, groups of heads. Arrows from 75 and from 73 meet at 76.")
LEFT, WIDE, TALL, TOP, LOW = 6.0, 128, 46, 30, 128
RIGHT = FULL - LEFT - WIDE
DRAWING.text(LEFT, 18, "lanes wait", "name")
DRAWING.text(RIGHT, 18, "no lane waits", "name")
for x, y, kind, words in ((LEFT, TOP, "data", "71_longest\nf16, whole tiles"), (RIGHT, TOP, "copy", "75_handover\nf16, whole tiles"),
                          (LEFT, LOW, "copy", "73_lengths\nbf16, any lengths"), (RIGHT, LOW, "work", "76_joined\nbf16, any lengths")):
    DRAWING.box(x, y, WIDE, TALL, kind, words, picked=kind == "work")
for y in (TOP, LOW):
    DRAWING.arrow(LEFT + WIDE + 4, y + TALL / 2, RIGHT - 4, y + TALL / 2)
    DRAWING.text((LEFT + WIDE + RIGHT) / 2, y + TALL / 2 - 6, "-LSE, -D,", "label", "middle")
    DRAWING.text((LEFT + WIDE + RIGHT) / 2, y + TALL / 2 + 16, "a later call", "label", "middle")
for x in (LEFT, RIGHT):
    DRAWING.arrow(x + WIDE / 2, TOP + TALL + 4, x + WIDE / 2, LOW - 4)
    DRAWING.text(x + WIDE / 2 + 6, (TOP + TALL + LOW) / 2 + 4, "lengths", "label")
