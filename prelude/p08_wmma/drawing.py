from tools.site.sketch import Sketch

DRAWING = Sketch("Fragments are opaque: S, P and P V go through shared memory, so that lanes can work on rows",
                 "Three layers. On top the tensor cores with QK and PV, whose fragments nobody can read. In the middle shared memory with S in f32, P in f16 and P V in f32. "
                 "Below the lanes, which own rows. QK stores S; the lanes read it for the softmax and store P; PV reads P and stores P V; the lanes read it and add it to "
                 "their rows of O, which they have scaled.")

for y, name in ((24, "tensor"), (36, "cores"), (96, "shared"), (108, "memory"), (170, "lanes,"), (182, "rows")):
    DRAWING.text(2, y, name, "label")
DRAWING.box(56, 14, 88, 30, "work", "QK")
DRAWING.box(196, 14, 88, 30, "work", "PV")
for x, name in ((56, "S, f32"), (166, "P, f16"), (276, "P V, f32")):
    DRAWING.box(x, 86, 88, 30, "data", name, True)
DRAWING.box(56, 160, 188, 30, "copy", "softmax")
DRAWING.box(276, 160, 88, 30, "copy", "O += P V")
DRAWING.arrow(100, 45, 100, 84)
DRAWING.arrow(100, 118, 100, 158)
DRAWING.arrow(210, 158, 210, 118)
DRAWING.arrow(220, 84, 230, 46)
DRAWING.arrow(262, 46, 310, 84)
DRAWING.arrow(320, 118, 320, 158)
DRAWING.arrow(246, 175, 274, 175)
DRAWING.text(248, 206, "correction", "label")
