"""What happens at a seam between two tiles of queries: who finds out what comes next, and who waits for it, in 56 and here."""
from tools.site.sketch import FULL, Sketch

LEFT, UNTIL = 66, 22
DRAWING = Sketch("What a block waits for at a seam, in 56 and here",
                 "Two groups of lanes. Above, 56: one thread divides, tells and asks; the warps end with the last PV, wait, and begin with the next QK. "
                 "Below, 99: that thread multiplies and asks, the warps find out their next tile beside the last PV, and the next QK follows at once.")
y = 12.0
for name, lanes in (
        ("56: one knows, and tells", [("copies", [(0, 9, "waste", "divides"), (9, 12, "work", "tells"), (12, 15, "work", "asks")]),
                                      ("warps", [(4, 10, "work", "last PV"), (10, 16, "waste", "wait"), (16, 22, "work", "QK, O leaves")])]),
        ("99: everybody knows", [("copies", [(0, 3, "work", "x 1/n"), (3, 6, "work", "asks")]),
                                 ("warps", [(4, 10, "work", "last PV"), (10, 16, "work", "QK, O leaves")])])):
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, UNTIL) + 18
DRAWING.text(2, y - 4, "Not to scale. Hatched: costs time and brings nothing.", "label")
