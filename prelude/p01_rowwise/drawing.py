from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("One block, one query: the row of scores is written and read on the chip",
                 "K and V lie in global memory. A block, framed, has one query. Its row of n scores lies in shared memory, 4 n bytes. Three steps follow one "
                 "another, with a barrier between them: QK reads K and writes the row of scores, SOFTMAX turns the row into weights, PV reads the "
                 "weights and V and writes one row of O. Nothing of size n x n is left.")

DRAWING.box(4, 4, 360, 24, "data", "global memory: Q, K, V, O, n x d halves each")
DRAWING.box(4, 60, 360, 126, "empty")
DRAWING.text(60, 74, "block of query q, 128 threads", "label")
STEPS = (("QK", 14, "a key per\nthread"), ("SOFTMAX", 136, "the row, in\nplace"), ("PV", 258, "a column\nper thread"))
for name, x, how in STEPS:
    DRAWING.box(x, 84, 96, 44, "work", f"{name}\n{how}")
for x in (123, 245):  # a barrier where a kernel ended
    DRAWING.line(x, 80, x, 150)
DRAWING.text(184, 56, "barriers between the steps", "label", "middle")
DRAWING.arrow(50, 30, 50, 82)
DRAWING.text(56, 44, "K", "label")
DRAWING.arrow(280, 30, 280, 82)
DRAWING.text(286, 44, "V", "label")
DRAWING.arrow(340, 82, 340, 30)
DRAWING.text(346, 44, "O", "label")
DRAWING.arrow(62, 130, 62, 152)
DRAWING.arrow(170, 152, 170, 130)
DRAWING.arrow(198, 130, 198, 152)
DRAWING.arrow(306, 152, 306, 130)
DRAWING.box(14, 154, 340, 24, "data", "shared memory: one row of n scores, 4 n bytes", True)
DRAWING.text(FULL / 2, 202, "n blocks per head, none needs the others", "label", "middle")
