from tools.site.sketch import Sketch

DRAWING = Sketch("Six kernels; P and dS are written to global memory once and read from it twice each",
                 "Above, five kernels in a row: weights, value_gradients, score_gradients, key_gradients, query_gradients. Below, P and dS, n x n each, in global memory. weights writes P; value_gradients and "
                 "score_gradients read it; score_gradients writes dS; key_gradients and query_gradients read it. A sixth kernel makes D, a number per query, which score_gradients reads.")
WIDE, STEP = 66, 74
CENTRE = [2 + i * STEP + WIDE / 2 for i in range(5)]
for centre, words in zip(CENTRE, ("weights", "dV =\nP^T dO", "dS =\nP(dP - D)", "dK =\ndS^T Q", "dQ =\ndS K")):
    DRAWING.box(centre - WIDE / 2, 40, WIDE, 34, "work", words)
DRAWING.box(CENTRE[2] - WIDE / 2, 2, WIDE, 20, "data", "D, n")
DRAWING.arrow(CENTRE[2], 22, CENTRE[2], 40)
DRAWING.box(2, 128, CENTRE[2] + 2, 28, "data", "P: n x n x 4 bytes", True)
DRAWING.box(CENTRE[2] + 10, 128, 366 - CENTRE[2] - 10, 28, "data", "dS: n x n x 4 bytes", True)
for x, up in ((CENTRE[0], False), (CENTRE[1], True), (CENTRE[2] - 12, True), (CENTRE[2] + 22, False), (CENTRE[3], True), (CENTRE[4], True)):
    DRAWING.arrow(x, 128 if up else 76, x, 76 if up else 126)
for x, words in ((CENTRE[0] + 6, "write"), (CENTRE[1] + 6, "read"), (CENTRE[3] + 6, "read"), (CENTRE[4] + 4, "read")):
    DRAWING.text(x, 104, words, "label")
DRAWING.text(2, 174, "Each number of P and dS: written once, read twice.", "label")
