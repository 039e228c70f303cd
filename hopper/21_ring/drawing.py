from tools.site.sketch import FULL, Sketch

STEP, TILES = 4, (2, 3)  # of a product, a softmax, a copy: equal, and invented
TILE = 3 * STEP
UNTIL = TILE * len(TILES)

work = []
for turn, tile in enumerate(TILES):
    at = turn * TILE
    work += [(at, at + STEP, "work", f"QK{tile}"), (at + STEP, at + 2 * STEP, "empty", "s"), (at + 2 * STEP, at + TILE, "work", f"PV{tile}")]


def place(what: str, tile: int, landed: int, read: int, requested: int) -> list[tuple]:
    """A slot or a stage: a tile lies in it from `landed` until it is read, and the tile after the next is requested at
    `requested`."""
    old, new = (" ".join(f"{name}{number}" for name in what) for number in (tile, tile + 2))
    bars = [(landed - STEP, landed, "copy", old if landed >= STEP else ""), (landed, read, "data", old), (read, requested, "empty", ""),
            (requested, requested + STEP, "copy", new), (requested + STEP, UNTIL, "data", new if requested + 2 * STEP <= UNTIL else "")]
    if landed > STEP:
        bars.insert(0, (0, landed - STEP, "empty", ""))
    return [(begin, min(end, UNTIL), kind, words) for begin, end, kind, words in bars if 0 <= begin < min(end, UNTIL)]


DRAWING = Sketch("What lies where while a warpgroup works on tiles 2 and 3: slots that K and V share, and a ring for each of them",
                 "20: a slot holds K and V of a tile; the next is requested after the softmax, and lands just before it is needed, at the end of PV. 21: K and V have two stages each. K4 is requested "
                 "after the softmax of tile 2, as QK of tile 2 has read K2; V4 as soon as PV of tile 2 has read V2. Each has landed long before it is needed. All lengths are invented.")
DRAWING.text(2, 12, "20: two slots, K and V together", "name")
slots = [("slot 0", place("KV", 2, 0, TILE, TILE + 2 * STEP)), ("slot 1", place("KV", 3, TILE, UNTIL, UNTIL))]
y = DRAWING.timeline(20, [("", work), *slots], 52, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "21: two stages each, two barriers per stage", "name")
stages = [("K 0", place("K", 2, 0, STEP, 2 * STEP)), ("K 1", place("K", 3, 0, TILE + STEP, TILE + 2 * STEP)),
          ("V 0", place("V", 2, 0, TILE, TILE + 1)), ("V 1", place("V", 3, STEP, UNTIL, UNTIL))]
y = DRAWING.timeline(y + 22, [("", work), *stages], 52, FULL - 2, UNTIL)
DRAWING.box(2, y + 6, 14, 12, "copy")
DRAWING.text(20, y + 16, "on its way", "label")
DRAWING.box(112, y + 6, 14, 12, "data")
DRAWING.text(130, y + 16, "full", "label")
DRAWING.box(176, y + 6, 14, 12, "empty")
DRAWING.text(194, y + 16, "empty", "label")
DRAWING.text(246, y + 16, "s: softmax", "label")
DRAWING.text(2, y + 32, "The order is the kernels', the lengths are invented.", "label")
