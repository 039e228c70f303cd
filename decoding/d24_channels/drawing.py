"""Which column each of four scales multiplies: of S, of Q, of P, of O."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A scale is a column of somebody: of a key, of S; of a column of K, of Q; of a value, of P; of a column of V, of O",
                 "Above, Q times K transposed is S. A key's scale multiplies that key's column of S. A scale of one column of K multiplies the same column of Q, before the product. Below, P times V is O. A value's scale multiplies its column of P, before the product, and a scale of one column of V the same column of O, behind it.")
CELL, KEY, COLUMN = 14, 4, 1


def grid(left: int, top: int, columns: int, rows: int, **picked: int) -> None:
    """`column` and `row` are of a scale of a column of K or V; `key` and `key_row` of one of a key or a value."""
    def kind(r: int, c: int) -> str:
        return "work" if picked.get("column") == c or picked.get("row") == r else "copy" if picked.get("key") == c or picked.get("key_row") == r else "data"
    DRAWING.grid(left, top, columns * CELL, rows * CELL, rows, columns, kind)


DRAWING.text(4, 14, "Q", "label")
grid(4, 22, 4, 3, column=COLUMN)
DRAWING.text(92, 14, "K transposed: columns are keys", "label")
grid(92, 22, 6, 4, row=COLUMN, key=KEY)
DRAWING.text(286, 14, "S", "label")
grid(270, 22, 6, 3, key=KEY)
DRAWING.text(4, 98, "K's column: Q's, once", "label")
DRAWING.text(210, 98, "a key: S's, in each tile", "label")

DRAWING.text(4, 130, "P", "label")
grid(4, 138, 6, 3, key=KEY)
DRAWING.text(128, 130, "V: rows are keys", "label")
grid(128, 138, 4, 6, column=COLUMN, key_row=KEY)
DRAWING.text(270, 130, "O", "label")
grid(270, 138, 4, 3, column=COLUMN)
DRAWING.text(4, 242, "a value: P's, in each tile", "label")
DRAWING.text(210, 242, "V's column: O's, once", "label")
