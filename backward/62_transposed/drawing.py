from tools.site.sketch import Sketch

DRAWING = Sketch("A lane's elements of S, of S transposed, and of the left operand that the next product wants: S transposed fits, S does not",
                 "Three squares of 16 x 16, a warp's rows down. Left, S: queries down and keys across. Outlined, lane 5's elements, pairs of neighbouring keys. Middle, S transposed: keys down and queries across; lane 5 has pairs of "
                 "neighbouring queries. Right, the left operand of dV = P^T dO: keys down, queries across; what lane 5 has to hold is what it has in the middle.")
LANE, SIDE, CELLS = 5, 104, 16
# FragmentC of two tiles side by side, and FragmentA: common/fragments.hpp
C_ROW, C_COLUMN = (lambda i: LANE // 4 + i // 2 % 2 * 8), (lambda i: LANE % 4 * 2 + i % 2 + i // 4 * 8)
A_ROW, A_COLUMN = (lambda i: LANE // 4 + i // 2 % 2 * 8), (lambda i: LANE % 4 * 2 + i % 2 + i // 4 * 8)
HELD, WANTED = {(C_ROW(i), C_COLUMN(i)) for i in range(8)}, {(A_ROW(i), A_COLUMN(i)) for i in range(8)}
assert HELD == WANTED and {(column, row) for row, column in HELD} != WANTED
for x, name, down, across, cells, shade in ((4, "S = Q K^T", "queries", "keys", HELD, "waste"), (132, "S^T = K Q^T", "keys", "queries", HELD, "work"),
                                            (260, "P^T, for dV", "keys", "queries", WANTED, "data")):
    DRAWING.text(x, 12, name, "name")
    DRAWING.text(x, 26, f"down {down},", "label")
    DRAWING.text(x, 38, f"across {across}", "label")
    DRAWING.grid(x, 46, SIDE, SIDE, CELLS, CELLS, lambda row, column, cells=cells, shade=shade: shade if (row, column) in cells else "empty")
DRAWING.text(246, 102, "=", "name", "middle")
DRAWING.text(4, 168, f"Filled: lane {LANE}, four registers of two numbers.", "label")
DRAWING.text(4, 184, "Hatched: pairs of keys; P^T wants pairs of queries.", "label")
