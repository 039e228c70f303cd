"""Whole numbers, and where the scales of their rows come in."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A query's scale is a row of S, and a key's a column",
                 "Q times K transposed, both in whole numbers, gives whole sums. A key's scale multiplies a column of them, one multiplication for each. A query's scale multiplies a row, and so it goes into the scale that the softmax has anyway.")
ROWS, KEYS, COLUMNS, CELL = 4, 7, 4, 16
QUERY, KEY = 1, 4


def grid(left: int, top: int, rows: int, columns: int, row: int = -1, column: int = -1) -> None:
    DRAWING.grid(left, top, columns * CELL, rows * CELL, rows, columns, lambda r, c: "work" if r == row or c == column else "data")


DRAWING.text(4, 14, "Q, int8", "label")
grid(4, 108, ROWS, COLUMNS, row=QUERY)
DRAWING.text(96, 14, "K transposed, int8", "label")
grid(96, 22, COLUMNS, KEYS, column=KEY)
grid(96, 108, ROWS, KEYS, row=QUERY, column=KEY)
DRAWING.text(96, 188, "S, whole sums, exact", "label")
DRAWING.box(248, 22, 34, 22, "copy", "K_j")
DRAWING.text(248, 58, "times its column:", "label")
DRAWING.text(248, 72, "one each score", "label")
DRAWING.arrow(246, 33, 96 + KEY * CELL + CELL + 3, 104)
DRAWING.box(248, 122, 34, 22, "copy", "Q_i")
DRAWING.text(248, 158, "times its row, as", "label")
DRAWING.text(248, 172, "the softmax is", "label")
DRAWING.arrow(246, 133, 96 + KEYS * CELL + 3, 133)
