"""A sink is one more score of a row, which the first share adds."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A sink is a score that the first share adds",
                 "A row's keys in four shares. The first one has a score more, the sink, whose value is zero. What all have found is joined as always.")
DRAWING.text(4, 14, "a row's scores", "label")
DRAWING.box(4, 22, 34, 26, "waste", "sink")
for share in range(4):
    DRAWING.box(42 + 76 * share, 22, 74, 26, "copy", f"share {share}")
    DRAWING.box(42 + 76 * share, 66, 74, 22, "work", "max, sum, O")
DRAWING.text(4, 82, "+", "label")
DRAWING.box(42, 106, 302, 22, "data", "joined")
