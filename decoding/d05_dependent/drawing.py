"""Two launches, one behind the other, or the second one waiting at the gate."""
from tools.site.sketch import Sketch

DRAWING = Sketch("The join begins when the shares have ended, or it is there already and waits",
                 "Above, bars of shares, then a gap, then the join. Below, the join's start lies beside the shares, and its work follows them at once.")
DRAWING.text(4, 14, "d04", "label")
DRAWING.box(4, 22, 170, 24, "work", "shares")
DRAWING.box(180, 22, 92, 24, "waste", "start")
DRAWING.box(278, 22, 60, 24, "work", "join")
DRAWING.text(4, 74, "d05", "label")
DRAWING.box(4, 82, 170, 24, "work", "shares")
DRAWING.box(82, 112, 92, 24, "waste", "start")
DRAWING.box(180, 112, 60, 24, "work", "join")
