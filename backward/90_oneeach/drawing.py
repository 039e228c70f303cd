"""Who has what of a block's 64 keys: three warpgroups, what each keeps, and what changes hands."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Three warpgroups, a gradient each: P and dS change hands, lane by lane and as a tile",
                 "Three columns. The first warpgroup multiplies K and Q to S, makes P of it and keeps dV. P goes to the second one, lane by lane. That one multiplies V and dO to dP, makes dS and keeps dK. dS goes to the third one as a tile. "
                 "That one multiplies dS and K and adds dQ to memory.")
WIDE, GAP = 92.0, 28.0
for number, (name, first, made, kept) in enumerate((("warpgroup 0", "K, Q: S", "P", "dV += P\u1d40 dO"), ("warpgroup 1", "V, dO: dP", "dS", "dK += dS\u1d40 Q"), ("warpgroup 2", "", "dS", "dQ = dS K"))):
    x = 4 + number * (WIDE + GAP)
    DRAWING.text(x + WIDE / 2, 14, name, "name", "middle")
    for y, words, kind in ((26, first, "work"), (76, made, "data"), (126, kept, "copy")):
        if words:
            DRAWING.box(x, y, WIDE, 30, kind)
            DRAWING.text(x + WIDE / 2, y + 19, words, "label", "middle")
    if first:
        DRAWING.arrow(x + WIDE / 2, 56, x + WIDE / 2, 74)
        DRAWING.arrow(x + WIDE, 91, x + WIDE + GAP - 2, 91)
    DRAWING.arrow(x + WIDE / 2, 106, x + WIDE / 2, 124)
    DRAWING.text(x + WIDE / 2, 174, "128 registers" if first else "added to memory", "label", "middle")
