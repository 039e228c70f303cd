"""Who knows which queries come next: 44's Work, beside Q."""
from tools.site.sketch import Sketch

WORDS = ("BEGIN", "END", "WHOLE_BEGIN", "WHOLE_END", "ZERO", "QUERY", "HEAD", "MORE")

DRAWING = Sketch("The thread that copies writes eight numbers beside Q; Q's barrier says that both are there; the others read what they need",
                 "Above, the thread that copies, with its schedule. It writes eight words into shared memory, then arrives at Q's barrier and asks for Q. Below, two warpgroups wait at that barrier, and read the words when they need one.")
DRAWING.box(4, 6, 120, 34, "work", "one thread: next?", True)
DRAWING.arrow(64, 42, 64, 66)
DRAWING.text(72, 58, "1  tells", "label")
DRAWING.arrow(112, 42, 292, 66)
DRAWING.text(222, 44, "2  arrives, asks for Q", "label")
for i, word in enumerate(WORDS):
    DRAWING.box(4 + 96 * (i % 2), 70 + 26 * (i // 2), 92, 22, "copy", word)
DRAWING.box(210, 70, 154, 100, "copy", "Q, 128 x 128")
for i in range(2):
    DRAWING.box(40 + 170 * i, 208, 118, 30, "work", f"warpgroup {i}")
    DRAWING.arrow(99 + 170 * i, 178, 99 + 170 * i, 204)
DRAWING.text(108, 196, "3  waits, then reads", "label")
