"""One warpgroup from one softmax to the next, where maxima grow. Only the order is the kernels'; the lengths are invented."""
from tools.site.sketch import FULL, Sketch

SOFTMAX, CORRECT, QK, PV = 4.0, 2.0, 3.0, 3.0
LEFT = 62

at = SOFTMAX + CORRECT
before = {"warps": [(0, SOFTMAX, "work", "softmax"), (SOFTMAX, at, "copy", "O"), (at, at + QK, "empty", ""), (at + QK, at + QK + SOFTMAX, "work", "softmax")],
          "products": [(at, at + QK, "data", "QK"), (at + QK, at + QK + PV, "data", "PV")]}
after = {"warps": [(0, SOFTMAX, "work", "softmax"), (SOFTMAX, at, "copy", "O"), (at, SOFTMAX + QK, "empty", ""), (SOFTMAX + QK, 2 * SOFTMAX + QK, "work", "softmax")],
         "products": [(SOFTMAX, SOFTMAX + QK, "data", "QK"), (SOFTMAX + QK, SOFTMAX + QK + PV, "data", "PV")]}
UNTIL = at + QK + SOFTMAX

DRAWING = Sketch("A warpgroup from one softmax to the next: it corrects O and then starts QK, or corrects O while QK runs",
                 "33: after a softmax the warps correct O; then QK and PV begin, and when QK is done, the next softmax. 34: QK begins after the softmax, the warps correct O while it runs, and PV follows. The next softmax "
                 "begins earlier by as long as the correction takes. The lengths are invented.")
DRAWING.text(2, 12, "33: O first, QK afterwards", "name")
y = DRAWING.timeline(20, list(before.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "34: QK does not need O", "name")
y = DRAWING.timeline(y + 22, list(after.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "O: it is corrected. White: the warps wait for QK.", "label")
DRAWING.text(2, y + 24, "The order is the kernels', the lengths are invented.", "label")
