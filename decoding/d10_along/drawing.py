"""Q behind the keys, or with its own first keys."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Q asked for at the end of a share, behind the keys, or two steps earlier with its own first keys",
                 "Above, d09: what the memory is asked for, in order. The keys of share B come before its Q, for Q is asked for when share A ends. Below, d10: Q of B comes with its first keys.")
for row, (name, order) in enumerate((("d09", ("K A", "K A", "K B", "K B", "Q B")), ("d10", ("K A", "K A", "Q B", "K B", "K B")))):
    top = 22 + 56 * row
    DRAWING.text(4, top - 6, f"{name}: what is asked for, in order", "label")
    at = 4
    for words in order:
        wide = 30 if words[0] == "Q" else 54
        DRAWING.box(at, top, wide, 22, "work" if words[0] == "Q" else "copy", words)
        at += wide + 2
