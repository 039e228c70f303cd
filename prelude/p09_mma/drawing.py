from tools.site.drawings import layouts
from tools.site.sketch import Sketch

LANE = 5
NAME = {"C": "S: two accumulators", "A": "P: one left operand"}


def held(name: str, lane: int) -> dict[tuple[int, int], int]:
    """Element of a 16 x 16 block -> which of the lane's values it is. Two accumulators stand side by side."""
    places = layouts()[name]["lanes"][lane]
    tiles = 2 if name == "C" else 1
    return {(row, column + 8 * tile): i + len(places) * tile for tile in range(tiles) for i, (row, column) in enumerate(places)}


for lane in range(32):
    if set(held("C", lane)) != set(held("A", lane)):
        raise ValueError(f"lane {lane} does not hold the same elements of S and of P")

DRAWING = Sketch(f"What lane {LANE} holds of S is what it needs of P: each pair is rounded into one register",
                 f"Two blocks of 16 rows and 16 columns. Left, the accumulators of two neighbouring tiles of S: lane {LANE} has registers 0 and 1 and, 8 rows below, 2 and 3 "
                 "of each tile. Right, the left operand P: the same elements, two to a register, 0 and 1 in the left half and 2 and 3 in the right. It holds for all 32 lanes.")
UNIT, TALL = 10.5, 14
for name, x in (("C", 18), ("A", 198)):
    places = held(name, LANE)
    DRAWING.text(x, 12, NAME[name], "name")
    DRAWING.box(x, 20, 16 * UNIT, 16 * TALL, "empty")
    DRAWING.line(x + 8 * UNIT, 20, x + 8 * UNIT, 20 + 16 * TALL, "dashed")
    for (row, column), i in places.items():
        if i % 2 == 0:
            words = f"{i % 4},{i % 4 + 1}" if name == "C" else f"{i // 2}"
            DRAWING.box(x + column * UNIT, 20 + row * TALL, 2 * UNIT, TALL, "data" if name == "C" else "work", words, True)
for row in (0, 8):
    DRAWING.text(14, 30 + row * TALL, str(row), "label", "end")
DRAWING.text(18, 36 + 16 * TALL, f"registers of lane {LANE}, f32", "label")
DRAWING.text(198, 36 + 16 * TALL, "f16, two to a register", "label")
