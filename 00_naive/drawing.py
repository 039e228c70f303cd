from tools.site.sketch import Sketch

DRAWING = Sketch("The scores make six trips through global memory",
                 "Three kernels stand side by side: scores, softmax, output. Below them lies global memory with Q, K, V, the n x n matrix S and "
                 "O. scores reads Q and K and writes S once. softmax reads S three times and writes it once. output reads S and V and "
                 "writes O. The matrix is touched by six of the arrows: 24 bytes for each score.")

for name, x in (("scores", 4), ("softmax", 130), ("output", 256)):
    DRAWING.box(x, 22, 108, 30, "work", name)
# Where a trip of S stands, up to its kernel or down from it.
for x, up in ((58, False), (148, True), (158, True), (168, True), (216, False), (310, True)):
    DRAWING.arrow(x, 108 if up else 54, x, 54 if up else 108)
for x, words in ((58, "write S"), (160, "read x 3"), (222, "write P"), (310, "read P")):
    DRAWING.text(x, 124, words, "label", "middle")
DRAWING.arrow(24, 14, 24, 22)
DRAWING.text(30, 12, "Q, K", "label")
DRAWING.arrow(278, 14, 278, 22)
DRAWING.text(284, 12, "V", "label")
DRAWING.arrow(346, 22, 346, 6)
DRAWING.text(340, 14, "O", "label", "end")
DRAWING.box(4, 134, 360, 34, "data", "S, then P: n x n x 4 bytes in global memory", True)
