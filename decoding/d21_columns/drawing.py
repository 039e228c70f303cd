"""S with eight rows that are used, and the same registers as the right side of the next product."""
from tools.site.sketch import Sketch

DRAWING = Sketch("S has eight rows that are used; as they lie, they are the right side of the next product",
                 "Left, S: sixteen rows of queries, keys as columns. Four rows are somebody's, twelve are hatched. A lane's two numbers stand side by side in a row. Right, O transposed is V transposed times P transposed: there rows of queries are columns, eight of them, and the lane's two numbers stand one below the other.")
CELL = 13


def used(row: int, lane: bool) -> str:
    return "work" if lane else "data" if row < 4 else "waste"


DRAWING.text(4, 14, "S, keys as columns", "label")
DRAWING.grid(4, 22, 8 * CELL, 16 * CELL, 16, 8, lambda r, c: used(r, r == 2 and c in (2, 3)))
DRAWING.text(124, 14, "V transposed, 16 columns", "label")
DRAWING.grid(124, 60, 8 * CELL, 8 * CELL, 8, 8, lambda r, c: "copy")
DRAWING.text(252, 52, "P transposed", "label")
DRAWING.grid(252, 60, 8 * CELL, 8 * CELL, 8, 8, lambda r, c: used(c, c == 2 and r in (2, 3)))
DRAWING.text(124, 190, "a lane's two weights, of", "label")
DRAWING.text(124, 204, "two keys: the same register", "label")
