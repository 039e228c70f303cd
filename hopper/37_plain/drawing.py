"""What stands between a product and the weights of a step: the questions of 36 and of 37, in their order. Lengths are invented."""
from tools.site.sketch import FULL, Sketch

LOOK, VOTE, WEIGHTS = 4.0, 1.5, 10.0  # the look at the scores, by integers; a vote; weights

ROWS = [("36", [(0, 1.5, "waste", "?"), (1.5, 5.5, "data", "look"), (5.5, 7, "waste", "?"), (7, 8.5, "waste", "?"), (8.5, 10, "work", "v"),
                (10, 20, "work", "weights")]),
        ("37", [(0, LOOK, "data", "look"), (LOOK, LOOK + VOTE, "work", "v"), (LOOK + VOTE, LOOK + VOTE + WEIGHTS, "work", "weights")])]
DRAWING = Sketch("Which questions a step asks before its weights: in 36 four, of a careful warp under a mask, in 37 one vote",
                 "36: on the diagonal? Then the look at the scores, then for each of two rows whether integers can be trusted, a vote, weights. 37: the look, one vote, weights. The lengths are invented.")
DRAWING.text(2, 12, "A careful warp under a mask, from scores to weights.", "label")
y = DRAWING.timeline(20, ROWS, 30, FULL - 2, 20)
DRAWING.text(2, y + 12, "?: a branch. v: a vote. The lengths are invented.", "label")
