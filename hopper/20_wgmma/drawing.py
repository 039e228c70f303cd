from tools.site.sketch import Sketch

WIDE, ROW = 104, 0.75  # of a matrix of 128 columns; of one of its rows
LEFT = (2, 132, 262)
DRAWING = Sketch("One warpgroup's two products: what lies in shared memory, what in registers, and one instruction's share of 16",
                 "Above, QK: 64 rows of Q and a tile of K, 128 keys, both in shared memory, each named by a descriptor; the result S, 64 x 128, is in registers, 16 rows in each of the four warps. "
                 "Below, PV: P, 64 x 128, in registers, a tile of V in shared memory, named by a descriptor; the result O in registers. One instruction takes 16 columns of Q and K, or 16 columns of P and 16 rows of V; "
                 "eight of them are a product.")


def matrix(x: float, y: float, name: str, where: str, rows: int, across: int, tall: int, picked) -> None:
    DRAWING.text(x, y - 18, name, "name")
    DRAWING.text(x, y - 4, where, "label")
    DRAWING.grid(x, y, WIDE, tall * ROW, rows, across, lambda row, column: "work" if picked(row, column) else "data",
                 lambda row, column: f"warp {row}" if across == 1 and rows == 4 else "")


first, none = lambda row, column: column == 0, lambda row, column: False
for y, a, b, c in ((34, "Q  64 x 128", "K  128 x 128", "S  64 x 128"), (204, "P  64 x 128", "V  128 x 128", "O  64 x 128")):
    of_scores = a[0] == "Q"
    matrix(LEFT[0], y, a, "shared memory" if of_scores else "registers", 1 if of_scores else 4, 8, 64, first)
    matrix(LEFT[1], y, b, "shared memory", 1 if of_scores else 8, 8 if of_scores else 1, 128, first if of_scores else lambda row, column: row == 0)
    matrix(LEFT[2], y, c, "registers", 4, 1, 64, none)
    DRAWING.text((LEFT[0] + WIDE + LEFT[1]) / 2, y + 28, "x", "", "middle")
    DRAWING.text((LEFT[1] + WIDE + LEFT[2]) / 2, y + 28, "=", "", "middle")
    for x, tall in ((LEFT[0], 64),) * of_scores + ((LEFT[1], 128),):
        DRAWING.box(x, y + tall * ROW + 14, WIDE, 16, "empty", "descriptor", True)
        DRAWING.arrow(x + WIDE / 16, y + tall * ROW + 13, x + WIDE / 16, y + tall * ROW + 2)
DRAWING.text(2, 346, "Shaded: one instruction. Eight are QK, eight are PV.", "label")
DRAWING.text(2, 360, "Of K the columns are d, of V the rows are keys.", "label")
