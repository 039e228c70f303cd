"""A list of steps that blocks cut, and where sinks come in."""
from tools.site.sketch import Sketch

DRAWING = Sketch("A head that is cut by the list, whose first piece adds the sink",
                 "Three heads of unlike lengths stand in one list, which three blocks cut into equal parts. The longest head has pieces in all of them. Each head's first piece has a mark: there the sink is added.")
DRAWING.text(4, 14, "heads", "label")
left = 4
for name, steps in (("A", 3), ("B", 9), ("C", 3)):
    DRAWING.box(left, 22, 20 * steps - 2, 20, "data", name)
    DRAWING.box(left, 46, 36, 20, "work", "sink")
    left += 20 * steps
DRAWING.text(4, 88, "blocks", "label")
for block in range(3):
    DRAWING.box(4 + 100 * block, 96, 98, 20, "work", f"{block}")
