from tools.site.sketch import Sketch

DRAWING = Sketch("A block of V, 16 keys by 16 columns: two instructions before, one now",
                 "Both times the block is four matrices of 8 x 8. Left, 03: one ldmatrix.x2.trans fetches the two matrices of columns 0 to 7, another one those of columns 8 to 15. "
                 "Right, 04: one ldmatrix.x4.trans fetches all four; matrices 0 and 1 are the fragment of columns 0 to 7, 2 and 3 that of columns 8 to 15.")
CELL = 62
for x, name, numbers in ((40, "03: x2.trans, twice", ((0, 0), (1, 1))), (236, "04: x4.trans, once", ((0, 2), (1, 3)))):
    DRAWING.text(x - 12, 12, name, "name")
    for column, words in enumerate(("0-7", "8-15")):
        DRAWING.text(x + (column + 0.5) * CELL, 30, words, "label", "middle")
    for row, words in enumerate(("0-7", "8-15")):
        DRAWING.text(x - 4, 36 + (row + 0.5) * CELL + 4, words, "label", "end")
        for column in range(2):
            DRAWING.box(x + column * CELL, 36 + row * CELL, CELL, CELL, ("data", "copy")[column], f"matrix\n{numbers[row][column]}")
    last = 36 + 2 * CELL
    if name.startswith("03"):
        for column in range(2):
            DRAWING.brace(x + column * CELL + 3, x + (column + 1) * CELL - 3, last + 3, "ldmatrix")
    else:
        DRAWING.brace(x + 3, x + 2 * CELL - 3, last + 3, "one ldmatrix")
DRAWING.text(0, 30, "columns", "label")
DRAWING.text(0, 46, "keys", "label")
