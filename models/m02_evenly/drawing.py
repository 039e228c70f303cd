"""What two neighbouring blocks get of heads of three tiles of queries under a mask, in 96 and here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 60, 24
DRAWING = Sketch("Two blocks that take shares of heads with three tiles, before and now",
                 "Two groups of two rows, what two blocks do over time. Above, 96: the first block gets the share of two tiles of queries each time, six tiles of keys, and the second one the share of one, three tiles of keys; so it has nothing to do in the second half. "
                 "Below, m02: the first block's shares are of four and two, the second one's of three and three, and both end together, earlier.")
y = 12.0
for name, blocks in (("96: a head makes a whole share and a half", (["4 + 2"] * 4, ["3"] * 4)), ("m02: two heads make three equal shares", (["4 + 2"] * 3, ["3 + 3"] * 3))):
    DRAWING.text(2, y, name, "name")
    lanes = []
    for block, shares in enumerate(blocks):
        spans, at = [], 0
        for share in shares:
            begin, at = at, at + sum(map(int, share.split(" + ")))
            spans.append((begin, at, "work", share))
        if name.startswith("96") and at < UNTIL:
            spans.append((at, UNTIL, "waste", "idle"))
        lanes.append((f"block {block}", spans))
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "A box is a share. Numbers: tiles of keys, one for each", "label")
DRAWING.text(2, y + 9, "tile of queries in it.", "label")
