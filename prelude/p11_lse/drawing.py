import math

from tools.site.sketch import Sketch

PARTS = ((1.0, 3.0, 2.0), (4.0, 0.0))  # scores of one row, over the keys of two blocks
lse = [math.log(sum(map(math.exp, scores))) for scores in PARTS]
whole = math.log(sum(map(math.exp, lse)))
assert abs(whole - math.log(sum(math.exp(score) for scores in PARTS for score in scores))) < 1e-12
factors = [math.exp(part - whole) for part in lse]

DRAWING = Sketch("Two blocks share a row's keys; one float each is enough to join what they have",
                 " ".join(f"Block {i} has keys with scores {', '.join(f'{score:g}' for score in scores)}: its log-sum-exp is {part:.2f}, and its O counts {factor:.2f}."
                          for i, (scores, part, factor) in enumerate(zip(PARTS, lse, factors))) + f" The row's log-sum-exp is {whole:.2f}.")
y = 20
DRAWING.text(4, 12, "scores of one row", "label")
for i, (scores, part, factor) in enumerate(zip(PARTS, lse, factors)):
    x = 4 + 216 * i
    DRAWING.grid(x, 20, 48 * len(scores), 22, 1, len(scores), lambda row, key: "data", lambda row, key: f"{scores[key]:g}")
    middle = x + 72 - 24 * i
    DRAWING.arrow(middle, 44, middle, 62)
    DRAWING.box(x, 64, 144, 22, "work", f"block {i}: O_{i}")
    DRAWING.box(x, 86, 144, 22, "copy", f"LSE_{i} = {part:.2f}", True)
    DRAWING.arrow(x + 72, 110, 184 + (-26 if i == 0 else 26), 148)
    DRAWING.text(4 if i == 0 else 364, 136, f"x {factor:.2f}", "", "start" if i == 0 else "end")
DRAWING.box(84, 150, 200, 36, "work", f"O = {factors[0]:.2f} O_0 + {factors[1]:.2f} O_1\nLSE = {whole:.2f}")
