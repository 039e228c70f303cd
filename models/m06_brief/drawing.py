"""Where a tile of queries ends and the next one begins: m01 and m06."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL, PV, QK, O = 76, 8.8, 3, 3, 2  # invented
SUM = 0.8  # two exchanges between lanes


def seam(quotient: tuple[str, float], logarithm: tuple[str, float]) -> list[tuple[str, list[tuple]]]:
    """The last product of some queries, the first of the next ones, and what threads do beside them."""
    threads, at = [], 0.0
    for begin, length, kind, words, *picked in (
            (0, SUM, "data", "sum"), (0, quotient[1], "copy", quotient[0], True), (PV, logarithm[1], "copy", logarithm[0], True), (0, O, "data", "O"), (PV + QK, UNTIL, "data", "2^S")):
        begin = max(begin, at)
        at = min(begin + length, UNTIL)
        threads.append((begin, at, kind, words, *picked))
    threads.sort(key=lambda bar: len(bar))  # outlines on top
    return [("products", [(0, PV, "work", "PV"), (PV, PV + QK, "work", "QK of the next")]), ("a warp", threads)]


DRAWING = Sketch("Where a tile of queries ends, in m01 and in m06",
                 "Two pairs of rows over time: products, and what a warp does beside them. Beside the last PV of a tile of queries the warp completes each row's sum and makes a quotient of it; beside the first QK of the next tile it makes the logarithm, "
                 "and stores O; then its exponentials begin. m01: quotient and logarithm take long, each of them many instructions, one after the other, some forty in all; O is stored when QK has ended, and exponentials begin late. m06: both are short, an instruction each of the special-function unit, and "
                 "exponentials begin where QK ends. All lengths are invented.")
y = 12.0
for name, quotient, logarithm in (("m01: some 40 instructions", ("1 / sum", 2.1), ("logf", 2.0)), ("m06: an instruction each", ("rcp", 0.8), ("lg2", 0.8))):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, seam(quotient, logarithm), LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Outlined: a row's quotient and its logarithm.", "label")
DRAWING.text(2, y + 9, "O: it is scaled and stored. Lengths are invented.", "label")
