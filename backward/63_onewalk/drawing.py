from tools.site.sketch import Sketch

DRAWING = Sketch("One walk down the columns; each block keeps dK and dV of its keys and adds to all of dQ",
                 "A square of queries, downwards, and keys, to the right. Three of its columns are walked down by a block each. Below, dK and dV: each strip belongs to one block. On the right, dQ: arrows from all blocks "
                 "lead to the same strip, and a plus sign stands there.")
X, Y, CELLS, SIDE = 4, 34, 6, 132
STEP = SIDE / CELLS
WALKED = (0, 2, 4)
DRAWING.text(X, 12, "gradients", "name")
DRAWING.text(X, 26, "queries down, keys across", "label")
DRAWING.grid(X, Y, SIDE, SIDE, CELLS, CELLS, lambda row, column: "work" if column in WALKED else "empty", picked=lambda row, column: row == 3 and column in WALKED)
for column in WALKED:
    DRAWING.arrow(X + (column + 0.5) * STEP, Y + 4, X + (column + 0.5) * STEP, Y + SIDE - 4)
DRAWING.grid(X, Y + SIDE + 8, SIDE, 18, 1, CELLS, lambda row, column: "data" if column in WALKED else "empty")
DRAWING.text(X + SIDE + 8, Y + SIDE + 21, "dK, dV: one owner each", "label")
SUM = 250
DRAWING.grid(SUM, Y, 24, SIDE, CELLS, 1, lambda row, column: "data", lambda row, column: "+" if row == 3 else "", lambda row, column: row == 3)
DRAWING.arrow(X + SIDE + 4, Y + 3.5 * STEP, SUM - 4, Y + 3.5 * STEP)
DRAWING.text(X + SIDE + 24, Y + 3.5 * STEP - 8, "red", "label")
DRAWING.text(SUM + 30, Y + 3.5 * STEP + 4, "dQ: f32,", "label")
DRAWING.text(SUM + 30, Y + 3.5 * STEP + 18, "in any order", "label")
