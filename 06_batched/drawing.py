from tools.site.sketch import Sketch

DRAWING = Sketch("A fragment of K and two groups of rows: which loop stands outside",
                 "Left, 05's order: for each group, load the fragment, multiply it. Two loads in the source. Right, 06: load the fragment, then multiply it for each group. "
                 "One load in the source.")
for x, name, lines in ((2, "05: groups outside", (("load K", "copy"), ("mma group 0", "work"), ("load K again", "waste"), ("mma group 1", "work"))),
                       (194, "06: groups inside", (("load K", "copy"), ("mma group 0", "work"), ("mma group 1", "work")))):
    DRAWING.text(x, 12, name, "name")
    for i, (words, kind) in enumerate(lines):
        DRAWING.box(x + (0 if "load" in words else 24), 22 + 28 * i, 140, 24, kind, words, kind == "copy" and x > 100)
DRAWING.text(2, 150, "for each fragment of K and V, in the source", "label")
