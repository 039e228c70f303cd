from tools.site.sketch import Sketch

DRAWING = Sketch("From a score to its weight: four steps before, two now, each waiting for the one to its left",
                 "Above, 04: multiply by the scale, subtract the maximum, multiply by log2 e, ex2. Below, 05: one fused multiply-add and ex2.")
for y, name, steps in ((8, "04", ("* scale", "- max", "* log2e", "ex2")), (62, "05", ("* scale_log2 - max", "ex2"))):
    DRAWING.text(2, y + 20, name, "name")
    x, wide = 66.0, (58, 52, 62, 40) if len(steps) == 4 else (134, 40)
    DRAWING.text(26, y + 20, "s")
    DRAWING.arrow(38, y + 16, x - 2, y + 16)
    for step, width in zip(steps, wide):
        DRAWING.box(x, y, width, 32, "work" if step == "ex2" else "data", step, "scale_log2" in step)
        DRAWING.arrow(x + width + 1, y + 16, x + width + 13, y + 16)
        x += width + 14
    DRAWING.text(x + 2, y + 20, "P")
DRAWING.text(66, 114, "one instruction per box, one fused", "label")
