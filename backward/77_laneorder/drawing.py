from tools.site.sketch import Sketch

DRAWING = Sketch("One reduction of a warp in 63 and in 77: eight half sectors, four whole ones",
                 "Above, the sum as a matrix: eight rows of eight numbers, each row a sector of 32 bytes. One reduction adds to columns 0, 2, 4 and 6 of all eight. Below, the sum in lane order: four sectors in a row, one "
                 "reduction adds to all of their 32 numbers.")
X, CELL = 4, 11.0
DRAWING.text(X, 12, "63: a matrix", "name")
DRAWING.grid(X, 22, 8 * CELL, 8 * CELL, 8, 8, lambda row, column: "work" if column % 2 == 0 else "empty")
for words, y in (("a row of eight numbers is a sector, 32 B", 34), ("shaded: what one reduction of", 62), ("32 lanes adds to", 76), ("eight sectors, half of each", 104)):
    DRAWING.text(X + 8 * CELL + 12, y, words, "label")
DRAWING.text(X, 140, "77: as the lanes hold it", "name")
DRAWING.grid(X, 150, 32 * CELL, CELL, 1, 32, lambda row, column: "work")
for sector in range(4):
    DRAWING.brace(X + sector * 8 * CELL + 2, X + (sector + 1) * 8 * CELL - 2, 168, "a sector")
