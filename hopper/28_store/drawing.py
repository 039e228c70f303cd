from tools.site.sketch import Sketch

ROWS, CHUNKS = 16, 8  # of a warp's rows of O in one panel: 64 columns, 16 B to a chunk
# Lane l of one stmatrix gives the address of row l % 16 and of column chunk l / 16, which lies in chunk ^ (row % 8).
written = {(lane % 16, lane // 16 ^ lane % 8): f"{lane // 16}" for lane in range(32)}
for matrix in range(4):  # one wavefront each: the eight rows of a matrix are in eight different places of 16 B
    assert len({(lane // 16 ^ lane % 8) for lane in range(8 * matrix, 8 * matrix + 8)}) == 8

DRAWING = Sketch("The way of a warp's O: from its registers by stmatrix into swizzled rows where Q lay, and out by the copy engine",
                 "Left, the 16 rows of a warp, one panel of 64 columns: eight pairs of 8x8 matrices, of which one stmatrix takes four, two C fragments side by side. Middle, the rows in shared memory, over the warp's "
                 "rows of Q: column chunks 0 and 1 of row r lie in places 0 ^ (r % 8) and 1 ^ (r % 8), so that the eight rows of a matrix are in eight different places. Then one lane asks the copy engine to store "
                 "16 rows of 128 bytes.")
DRAWING.text(2, 12, "registers", "name")
DRAWING.text(2, 27, "one panel of O", "label")
DRAWING.grid(2, 34, 128, 80, 2, 8, lambda row, column: "work" if column < 2 else "data", lambda row, column: f"m{2 * column + row}" if column < 2 else "")
DRAWING.text(2, 130, "16 rows, 64 columns:", "label")
DRAWING.text(2, 144, "2 x 8 matrices 8x8", "label")
DRAWING.arrow(134, 74, 184, 74)
DRAWING.text(159, 66, "stmatrix", "label", "middle")
X, UNIT = 210, 18
DRAWING.text(X, 12, "shared memory", "name")
DRAWING.text(X, 27, "places of 16 B", "label")
DRAWING.grid(X, 34, CHUNKS * UNIT, ROWS * 12, ROWS, CHUNKS, lambda row, place: "work" if (row, place) in written else "data", lambda row, place: written.get((row, place), ""))
for row in (0, 7, 8, 15):
    DRAWING.text(X - 4, 44 + 12 * row, str(row), "label", "end")
DRAWING.text(2, 196, "Shaded: one instruction.", "label")
DRAWING.text(2, 210, "0, 1: column chunks", "label")
DRAWING.arrow(X + 72, 228, X + 72, 256)
DRAWING.text(X + 64, 246, "fence, then one lane sends", "label", "end")
DRAWING.box(X - 60, 258, CHUNKS * UNIT + 60, 20, "copy", "copy engine: 16 x 128 B")
DRAWING.arrow(X - 62, 268, X - 96, 268)
DRAWING.text(X - 100, 272, "O, global", "", "end")
