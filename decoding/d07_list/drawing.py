"""Shares of each sequence, or a list cut into equal parts."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Each sequence in as many shares, or all sequences in one list that is cut into equal parts",
                 "Above, three sequences, each cut into two; the longest one's halves are ten times as long as the shortest one's. Below, the three behind each other, cut into six equal parts.")
DRAWING.text(4, 14, "d06: six blocks", "label")
for row, (name, share) in enumerate((("A", 100), ("B", 20), ("C", 10))):
    for half in range(2):
        DRAWING.box(4 + half * (share + 2), 22 + 26 * row, share, 20, "work", name)
DRAWING.text(4, 122, "d07: six blocks", "label")
for part, (name, kind) in enumerate((("A", "work"), ("A", "work"), ("A", "work"), ("A", "work"), ("A B", "work"), ("B C", "work"))):
    DRAWING.box(4 + 46 * part, 130, 44, 20, kind, name)
