from tools.site.sketch import FULL, Sketch

STEP, UNTIL = 4, 20  # of QK, and of PV with a softmax under it; invented
LEFT = 78


def warpgroup(begin: int, tile: int, waits: int = 0) -> list[tuple]:
    """Its products and softmaxes from `begin` on; `waits` is how long it waits in each tile before it may request a
    copy."""
    bars, at = [], begin
    while at < UNTIL:
        bars.append((at, at + STEP, "work", f"QK{tile}"))
        at += STEP
        bars.append((at, at + waits, "waste", ""))
        at += waits
        bars.append((at, at + STEP, "data", f"PV{tile - 1} s{tile}"))
        at += STEP
        tile += 1
    return [(max(start, 0), min(end, UNTIL), kind, words if end <= UNTIL and start >= 0 else "") for start, end, kind, words in bars if end > start and start < UNTIL and end > 0]


DRAWING = Sketch("Who requests tiles, and who waits for whom; below, the registers of a thread of each of the three warpgroups",
                 "22: warpgroup 0 requests tiles too, and waits in each tile until warpgroup 1 has read a stage; so the two are in their softmax at the same time. 23: a producer requests tiles whenever a "
                 "stage is empty; the consumers drift apart, and one has its QK on the tensor cores while the other is in its softmax. Registers: 168 for each of three threads at the start, then 24 "
                 "for the producer and 240 for each consumer, 504 in all. All lengths of time are invented.")
DRAWING.text(2, 12, "22: warpgroup 0 requests tiles too", "name")
y = DRAWING.timeline(20, [("wg 0", warpgroup(0, 2, 1)), ("wg 1", [(0, 1, "data", ""), *warpgroup(1, 2, 0)[:2], (9, 10, "waste", ""), *warpgroup(10, 3, 0)])], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "23: a producer, and two that drift apart", "name")
requests = [(at, at + 2.2, "copy", name) for at, name in ((0.3, "K4"), (4.3, "V3"), (8.3, "K5"), (12.3, "V4"), (16.3, "K6"))]
y = DRAWING.timeline(y + 22, [("producer", requests), ("consumer 0", warpgroup(0, 3)), ("consumer 1", warpgroup(-STEP, 2))], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "Shaded: QK. Light: softmax under PV. Hatched: waits.", "label")
DRAWING.text(2, y + 24, "The order is the kernels', the lengths are invented.", "label")
DRAWING.text(2, y + 48, "Registers of three threads", "name")
for i, (words, shares) in enumerate((("at start", (168, 168, 168)), ("then", (24, 240, 240)))):
    x, top = LEFT, y + 56 + 22 * i
    DRAWING.text(LEFT - 6, top + 13, words, "", "end")
    for turn, share in enumerate(shares):
        wide = (FULL - 2 - LEFT) * share / sum(shares)
        DRAWING.box(x, top, wide, 18, "copy" if turn == 0 else "work", str(share))
        x += wide
    assert sum(shares) == 504
