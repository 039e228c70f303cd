"""How stale a maximum may be: in f16 and in bf16, on one axis."""
from tools.site.sketch import Sketch

F16, BF16, END = 15, 64, 127  # the sums of a lane's weights at which a warp makes them again, and where bf16 ends
DRAWING = Sketch("How far a score may outgrow its row's first maximum, in log2 units: 15 in f16, 64 in bf16",
                 f"An axis of log2 units from 0 to {END}, where bf16 and f32 end. In f16 a weight fits up to {F16}, and beyond that a tile is made again. In bf16 it fits up to {BF16}; from there to {END} is room for the "
                 "values of V. Random scores outgrow the first maximum by a few units, peaky ones by hundreds.")
at = DRAWING.number_line(86, 0, END + 5, ((0, "0"), (F16, f"{F16}"), (BF16, f"{BF16}"), (END, f"{END}")), 40)
for y, name, limit in ((20, "f16", F16), (46, "bf16", BF16)):
    DRAWING.text(34, y + 12, name, "", "end")
    DRAWING.box(at(0), y, at(limit) - at(0), 18, "work", "fits")
    if name == "f16":
        DRAWING.box(at(limit), y, at(END) - at(limit), 18, "waste", "make the tile again")
    else:
        DRAWING.box(at(limit), y, at(END) - at(limit), 18, "data", "for the values of V")
DRAWING.text(2, 12, "A score's lead over the maximum", "label")
DRAWING.arrow(at(3), 128, at(3), 108)
DRAWING.text(at(3) - 6, 140, "random: a few", "label")
DRAWING.arrow(at(98), 134, at(END), 134)
DRAWING.text(at(96), 138, "peaky: hundreds", "label", "end")
