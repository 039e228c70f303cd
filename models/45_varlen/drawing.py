"""How a box ends where a text does: the map of 45, with two dimensions for the rows."""
from tools.site.sketch import Sketch

TILE, VALID = 128, 5
Y0 = TILE - VALID  # where the box begins

DRAWING = Sketch(f"{VALID} rows of a text and {TILE - VALID} of its neighbour's under one box: the map has only {TILE} values of y, and the box begins at y = {Y0}",
                 f"Left, rows in memory: the last {VALID} rows of text A, then text B. A box of {TILE} rows from there would reach into B. Right, the same box in the map: y runs from 0 to {TILE - 1}, and the box begins at {Y0}, so {VALID} rows lie inside. "
                 "The others lie outside: zeros when they are loaded, nothing when they are stored.")
UNIT = 1.1
DRAWING.text(4, 14, "memory", "name")
DRAWING.box(4, 24, 90, 60, "data", "text A")
DRAWING.box(4, 84, 90, 22, "copy", f"its last {VALID}", True)
DRAWING.box(4, 106, 90, 110, "waste", "text B")
DRAWING.text(196, 14, "the map: y from 0 to 127", "name")
DRAWING.box(196, 24, 110, 60, "empty", f"y < {Y0}")
DRAWING.box(196, 84, 110, 22, "copy", f"y = {Y0} to 127", True)
DRAWING.box(196, 106, 110, 110, "empty", "outside")
DRAWING.arrow(98, 95, 192, 95)
DRAWING.text(112, 88, "z says", "label")
DRAWING.text(112, 110, "which rows", "label")
DRAWING.text(4, 236, "Outside: zeros when loaded, nothing when stored.", "label")
