"""A tile in 82 and in 91: what the tensor cores do, and what the threads do beside them."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL, GAP = 76, 5.4, 0.2  # in units of 512 clocks, a product of both warpgroups; gaps and what threads do are invented
EXP, DS = 1, 1.2  # what threads do: all of a tile's exponentials, and its dS
MEET, WAIT = 3 + GAP, 5 + GAP
DRAWING = Sketch("What tensor cores and threads do during a tile, in 82 and in 91",
                 "Two pairs of rows over time. 82: S; then dP, beside which the exponentials run; then dV, beside which dS is made. Both warpgroups meet when dS is there; until then nothing multiplies. Then come dQ and dK of the same tile, and a wait for both, after which, again, nothing multiplies for a while. "
                 "91: S; then dQ and dK of the tile before, under which the first half of the exponentials runs; then dP, under the second half; then dV, beside which dS is made. There is no gap between products. "
                 "Each product takes 512 clocks for both warpgroups together; gaps and the times of threads are invented.")
y = 12.0
for name, products, threads, barriers in (
        ("82", [(0, 1, "work", "S"), (1, 2, "work", "dP"), (2, 3, "work", "dV"), (3, MEET, "waste", ""), (MEET, MEET + 1, "work", "dQ"), (MEET + 1, WAIT, "work", "dK"), (WAIT, UNTIL, "waste", "")],
         [(1, 1 + EXP, "data", "2^S"), (2, 2 + DS, "data", "dS")], (MEET, WAIT)),
        ("91", [(0, 1, "work", "S"), (3, 4, "work", "dP"), (4, 5, "work", "dV"), (1, 2, "copy", "dQ", True), (2, 3, "copy", "dK", True)],
         [(1, 1 + EXP / 2, "data", "2^S"), (3, 3 + EXP / 2, "data", "2^S"), (4, 4 + DS, "data", "dS")], ())):
    DRAWING.text(2, y, name, "name")
    for time, words in zip(barriers, ("both meet", "wait")):
        DRAWING.text(LEFT + (FULL - 2 - LEFT) * time / UNTIL, y, words, "label", "middle")
    y = DRAWING.timeline(y + 8, [("products", products), ("threads", threads)], LEFT, FULL - 2, UNTIL, barriers) + 18
DRAWING.text(2, y - 4, "Outlined: of the tile before. Hatched: nothing multiplies.", "label")
DRAWING.text(2, y + 9, "A product: 512 clocks. The other times are invented.", "label")
