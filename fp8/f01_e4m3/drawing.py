"""Which keys a lane has of P, and which order of V that makes."""
from tools.site.sketch import Sketch

LANES = ("work", "copy", "data", "empty")
DRAWING = Sketch("A lane's weights of sixteen keys, and where the four of a register must stand",
                 "Above, sixteen keys in two tiles of scores, eight each. Of each tile lane 0 has the first two, lane 1 the next two, and so on. Below, the order in which a register of bytes wants them: four neighbours belong to one lane. So lane 0's are keys 0, 1, 8 and 9, and V's columns stand in that order, too.")
DRAWING.text(4, 14, "scores of sixteen keys: two tiles, of each a lane has two", "label")
for key in range(16):
    DRAWING.box(4 + 22 * key + 8 * (key // 8), 22, 21, 22, LANES[key % 8 // 2], str(key))
DRAWING.text(4, 66, "one register of P each, and the order of V's keys", "label")
for place in range(16):
    lane, of_four = divmod(place, 4)
    DRAWING.box(4 + 22 * place + 3 * lane, 74, 21, 22, LANES[lane], str(of_four // 2 * 8 + 2 * lane + of_four % 2))
for lane in range(4):
    DRAWING.text(20 + 91 * lane, 112, f"lane {lane}", "label")
