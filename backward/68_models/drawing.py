from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("A block of keys walks over the queries of all heads of its group; dK and dV stay, dQ goes to each head's own sum",
                 "Left, a block of 128 keys with its dK and dV. To its right four strips, the queries of four heads that share these keys; the walk goes down the first, then down the second, and so on. Below each strip, the sum of "
                 "dQ of that head.")
DRAWING.text(2, 12, "a block", "name")
DRAWING.box(2, 40, 84, 20, "data", "128 keys")
DRAWING.box(2, 66, 84, 20, "work", "dK, dV", True)
DRAWING.text(2, 104, "stay in regis-", "label")
DRAWING.text(2, 118, "ters, for all", "label")
DRAWING.text(2, 132, "heads", "label")
LEFT, STEP, WIDE, TOP, TALL = 106, 66, 56, 40, 96
DRAWING.text(LEFT, 12, "queries of the group's heads", "name")
for head in range(4):
    x = LEFT + head * STEP
    DRAWING.text(x, 32, f"head {head}", "label")
    DRAWING.grid(x, TOP, WIDE, TALL, 6, 1, lambda row, column: "copy")
    DRAWING.arrow(x + WIDE / 2, TOP + 6, x + WIDE / 2, TOP + TALL - 4)
    DRAWING.box(x, TOP + TALL + 18, WIDE, 22, "data", "dQ")
    if head < 3:
        DRAWING.arrow(x + WIDE + 1, TOP + TALL - 8, x + STEP - 1, TOP + 8)
DRAWING.text(LEFT, TOP + TALL + 58, "a sum of each head in memory", "label")
assert LEFT + 3 * STEP + WIDE <= FULL
