from tools.site.sketch import Sketch

DRAWING = Sketch("Two walks over the same n x n pairs: one down the columns for dK and dV, one along the rows for dQ",
                 "Twice the same square of queries, downwards, and keys, to the right. Left, key_gradients: a block owns a strip of keys and walks down over all queries; below the square stand dK and dV, each strip "
                 "written by one block. Right, query_gradients: a block owns a strip of queries and walks to the right over all keys; beside the square stands dQ, each strip written by one block.")
CELLS, SIDE = 6, 126
for x, name, down in ((4, "key_gradients", True), (190, "query_gradients", False)):
    DRAWING.text(x, 12, name, "name")
    DRAWING.text(x, 26, "queries down, keys across", "label")
    DRAWING.grid(x, 34, SIDE, SIDE, CELLS, CELLS, lambda row, column, down=down: "work" if (column if down else row) == 2 else "empty")
    own = 2.5 * SIDE / CELLS
    if down:
        DRAWING.arrow(x + own, 38, x + own, 34 + SIDE - 4)
        DRAWING.grid(x, 34 + SIDE + 8, SIDE, 18, 1, CELLS, lambda row, column: "data", lambda row, column: "", lambda row, column: column == 2)
        DRAWING.text(x + SIDE + 6, 34 + SIDE + 21, "dK, dV", "")
    else:
        DRAWING.arrow(x + 4, 34 + own, x + SIDE - 4, 34 + own)
        DRAWING.grid(x + SIDE + 8, 34, 18, SIDE, CELLS, 1, lambda row, column: "data", lambda row, column: "", lambda row, column: row == 2)
        DRAWING.text(x + SIDE + 9, 34 + SIDE + 21, "dQ", "")
DRAWING.text(4, 206, "Each block writes what it owns. S, dP: computed twice.", "label")
