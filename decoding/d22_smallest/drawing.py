"""A scale of a key beside the column of S that it multiplies, and one of a value beside the column of P."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A scale of a key is a column of S, and one of a value a column of P",
                 "Above, Q times a key of whole numbers gives a column of S, and the key's scale multiplies that column. Below, a column of P is multiplied by a value's scale before it meets the row of V, whose numbers stay whole.")
KEYS, PICKED, CELL = 6, 3, 16


def grid(left: int, top: int, columns: int, rows: int, column: int = -1, row: int = -1) -> None:
    DRAWING.grid(left, top, columns * CELL, rows * CELL, rows, columns, lambda r, c: "work" if c == column or r == row else "data")


DRAWING.text(4, 14, "Q", "label")
grid(4, 60, 4, 3)
DRAWING.text(86, 14, "K transposed, whole numbers", "label")
grid(100, 22, KEYS, 4, column=PICKED)
DRAWING.text(258, 14, "S", "label")
grid(230, 60, KEYS, 3, column=PICKED)
DRAWING.box(230 + PICKED * CELL - 12, 22, 40, 22, "copy", "K_j")
DRAWING.text(230 + PICKED * CELL + 34, 37, "times", "label")

DRAWING.text(4, 136, "P", "label")
grid(4, 172, KEYS, 3, column=PICKED)
DRAWING.box(4 + PICKED * CELL - 12, 140, 40, 22, "copy", "V_j")
DRAWING.text(4 + PICKED * CELL + 34, 155, "times", "label")
DRAWING.text(150, 136, "V, whole numbers", "label")
grid(150, 144, 5, KEYS, row=PICKED)
DRAWING.text(268, 164, "O", "label")
grid(268, 172, 5, 3)
