from tools.site.sketch import Sketch

THRESHOLD, F16_END = 8, 16  # in log2 units

DRAWING = Sketch("Where a tile's largest score lies, seen from the reference of its row, in powers of two",
                 f"A number line with the reference at 0, where a weight is 1. Up to {THRESHOLD} the reference stays: a weight is at most 2 to the {THRESHOLD}. Above, O is rescaled and the reference moves. "
                 f"At {F16_END} a weight would no longer fit into f16. 08 multiplied O in every tile, by 1 where no maximum lay above 0.")
at = DRAWING.number_line(92, -4, 18, ((0, "0"), (THRESHOLD, str(THRESHOLD)), (F16_END, str(F16_END))))
DRAWING.text(2, 12, "08", "name")
DRAWING.box(at(-4), 4, at(0) - at(-4), 26, "waste", "O x 1")
DRAWING.box(at(0), 4, at(18) - at(0), 26, "waste", "multiply O and the sum")
DRAWING.text(2, 48, "09", "name")
DRAWING.box(at(-4), 54, at(THRESHOLD) - at(-4), 26, "data", "keep", True)
DRAWING.box(at(THRESHOLD), 54, at(18) - at(THRESHOLD), 26, "waste", "multiply O")
DRAWING.text(at(0), 124, "weight 1", "label", "middle")
DRAWING.text(at(THRESHOLD), 124, "256", "label", "middle")
DRAWING.text(at(F16_END), 124, "f16 ends", "label", "middle")
DRAWING.text(2, 144, "tile maximum - reference, in log2 units", "label")
