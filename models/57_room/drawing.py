"""The seam between two tiles of queries: 53 and 57."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 66, 22
DRAWING = Sketch("Between two tiles of queries, in 53 and in 57",
                 "Two groups of rows over time: products and copies. 53: after the last PV O leaves, then Q comes, then QK starts. 57: Q comes as soon as the last QK has ended, beside the softmax and the last PV; O leaves from "
                 "a place of its own, and QK starts earlier. All lengths of time are invented.")
y = 12.0
for name, products, copies in (
        ("53: O out, Q in", [(0, 3, "work", "QK"), (5, 8, "work", "PV"), (8, 19, "waste", ""), (19, 22, "work", "QK")],
         [(9, 13, "copy", "O out"), (13, 19, "copy", "Q in")]),
        ("57: Q in, O out", [(0, 3, "work", "QK"), (5, 8, "work", "PV"), (8, 12, "waste", ""), (12, 15, "work", "QK")],
         [(3, 9, "copy", "Q in"), (9, 13, "copy", "O out")])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [("products", products), ("copies", copies)], LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Of one warpgroup. Lengths are invented.", "label")
