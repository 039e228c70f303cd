from tools.site.sketch import Sketch

LOAD, STEPS = 30.0, 5  # cycles of an ldmatrix, as the write-up has them; four mma take about as long, for the drawing

before, load, multiply = [], [], []
at = 0.0
plain_load, plain_multiply = [], []
for step in range(STEPS - 2):
    plain_load.append((at, at + LOAD, "copy", f"load {step}"))
    plain_multiply += [(at, at + LOAD, "waste", ""), (at + LOAD, at + 2 * LOAD, "work", f"mma {step}")]
    at += 2 * LOAD
for step in range(STEPS):
    (load if step % 2 == 0 else before).append((step * LOAD, (step + 1) * LOAD, "copy", f"load {step}"))
    multiply.append(((step + 1) * LOAD, (step + 2) * LOAD, "work", f"mma {step}"))

DRAWING = Sketch("What the source says: one warp with one set of registers, and with two",
                 "Above, one set: a load of fragments, then four mma that need it, then the next load, which overwrites the set. Below, two sets: while the products of one set run, "
                 "the next load fills the other. The widths are the source's idea, not measured times: the compiler and other warps fill the hatched gaps already.")
DRAWING.text(2, 12, "06: one set", "name")
y = DRAWING.timeline(20, [("set", plain_load), ("mma", plain_multiply)], 44.0, 366.0)
DRAWING.text(2, y + 16, "07: two sets", "name")
y = DRAWING.timeline(y + 24, [("set 0", load), ("set 1", before), ("mma", [(0.0, LOAD, "waste", ""), *multiply])], 44.0, 366.0)
DRAWING.text(2, y + 14, "Hatched: no products of this warp. Other warps and", "label")
DRAWING.text(2, y + 28, "the compiler fill it already.", "label")
