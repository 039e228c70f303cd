"""Which of the 128 columns of a row are worked on where a head has 96: in 76 [d <= 96], in 94 and in g01."""
from tools.site.sketch import FULL, Sketch

LEFT, RIGHT = 118.0, FULL - 12
HEAD, HALF, ROW = 96, 64, 128  # columns: of a head, of half of dQ, of a row in shared memory
DRAWING = Sketch("Which of 128 columns are worked on where a head has 96: in 76, 94 and g01",
                 "Three groups of five bars over an axis of columns with the numbers 0, 64, 96 and 128. A bar is what a kernel works on; plain up to column 96, hatched from 96 to 128, where there are only zeros. "
                 "The bars of a group: the products S and dP, which sum over columns; the products dV and dK; the product dQ, in two halves of 64 columns; what is added to the sum of dQ; what of the sum is cleared before. "
                 "76 [d <= 96]: S, dP, dV and dK end at 96; dQ, its sum and the clearing go to 128. 94: all five go to 128. "
                 "g01: all end at 96 but the product dQ, whose second half goes from 64 to 128; of that half only the 32 columns up to 96 are added to the sum.")


def bar(kind: str, words: str, end: int) -> list[tuple]:
    return [(0, HEAD, kind, words)] + [(HEAD, end, "waste", "zeros")] * (end > HEAD)


y = 12.0
for name, products, of_sum in (("76 [d <= 96]", HEAD, ROW), ("94", ROW, ROW), ("g01", HEAD, HEAD)):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("S, dP", bar("work", "multiplied", products)), ("dV, dK", bar("work", "multiplied", products)),
                                 ("dQ", [(0, HALF, "work", "first half"), (HALF, HEAD, "work", "second"), (HEAD, ROW, "waste", "zeros")]),
                                 ("added to its sum", bar("copy", "added", of_sum)), ("cleared before", bar("data", "cleared", of_sum))],
                         LEFT, RIGHT, ROW) + 18
y -= 8
DRAWING.text(LEFT - 6, y + 4, "columns", "label", "end")
DRAWING.number_line(y, 0, ROW, [(column, str(column)) for column in (0, HALF, HEAD, ROW)], LEFT, RIGHT)
DRAWING.text(2, y + 36, "Hatched: behind the 96 columns of the head.", "label")
