from tools.site.sketch import Sketch

ROWS, KEYS = 4, 8  # of S per lane

DRAWING = Sketch("What a lane computes of the scores between two exchanges, and what it reads for it",
                 f"Left, p06: {ROWS} rows of Q and 1 key, of which the lane has only an eighth of the sum: three exchanges for every key. Right, p07: {ROWS} rows of Q and {KEYS} keys, "
                 f"whole sums: {ROWS + KEYS} chunks read serve {ROWS * KEYS} products. p06 reads 1 for {ROWS}, for it keeps its Q in registers. The row's maximum is exchanged, "
                 "and O corrected, once for a tile of 64 keys.")
UNIT = 22
LEFT, RIGHT = 32, 160
DRAWING.text(4, 12, "p06", "name")
DRAWING.text(LEFT + UNIT / 2, 28, "k", "label", "middle")
DRAWING.grid(LEFT, 34, UNIT, ROWS * UNIT, ROWS, 1, lambda row, key: "copy")
for row in range(ROWS):
    DRAWING.text(LEFT - 6, 34 + row * UNIT + 15, f"q{row}", "label", "end")
    DRAWING.text(RIGHT - 6, 34 + row * UNIT + 15, f"q{row}", "label", "end")
DRAWING.text(RIGHT - 28, 12, "p07", "name")
for key in range(KEYS):
    DRAWING.text(RIGHT + (key + 0.5) * UNIT, 28, f"k{key}", "label", "middle")
DRAWING.grid(RIGHT, 34, KEYS * UNIT, ROWS * UNIT, ROWS, KEYS, lambda row, key: "work", picked=lambda row, key: False)
for i, (old, new) in enumerate((("reads 1, keeps Q", f"reads {ROWS} + {KEYS}"), (f"{ROWS} products", f"{ROWS * KEYS} products"), ("1/8 of a sum", "whole sums"),
                                ("O: each key", "O: corrected once for 64 keys"))):
    DRAWING.text(4, 142 + 15 * i, old, "label")
    DRAWING.text(RIGHT - 28, 142 + 15 * i, new, "label")
