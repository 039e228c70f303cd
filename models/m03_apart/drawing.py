"""How two blocks walk over the keys of four tiles of queries under a mask, in 57 and here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 60, 12
DRAWING = Sketch("Two blocks at a seam, together and apart",
                 "Two groups of two rows, what two blocks do over time. Above, 57: the first block needs six tiles of keys and the second one eight, so the first one waits, and again when it needs two and the other one four. "
                 "Below, m03: the first block has a tile of queries with eight and one with two, the second one six and four. Neither waits, and both end earlier.")
y = 12.0
for name, blocks in (("57: two blocks share keys", ((6, 0, 2, 0), (8, 4))), ("m03: each block alone", ((8, 2), (6, 4)))):
    DRAWING.text(2, y, name, "name")
    lanes = []
    for block, walks in enumerate(blocks):
        spans, at = [], 0
        for tiles in walks:
            wide = tiles or 2  # the other block's tiles pass
            words = f"{tiles} tiles of keys" if tiles > 4 else f"{tiles} tiles" if tiles else "waits"
            spans.append((at, at + wide, "work" if tiles else "waste", words))
            at += wide
        lanes.append((f"block {block}", spans))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "512 queries, in tiles of 128; tiles of 64 keys.", "label")
DRAWING.text(2, y + 9, "Hatched: lets tiles pass that only the other block needs.", "label")
