from tools.site.sketch import FULL, Sketch

STEP, PACK, UNTIL = 4, 1, 18  # of a product, of packing; invented
LEFT = 62


def timelines(pack: int) -> tuple[list[tuple], list[tuple], list[int]]:
    """Products and softmax of tiles 1 and 2, and when each PV begins. What is packed after PV takes `pack`, when
    nothing runs."""
    products, lanes, begins, at = [], [], [], 0
    for tile in (1, 2):
        products += [(at, at + STEP, "work", f"QK{tile}"), (at + STEP, at + 2 * STEP, "work", f"PV{tile - 1}"), (at + 2 * STEP, at + 2 * STEP + pack, "waste", "")]
        lanes.append((at + STEP, at + 2 * STEP, "data", f"s{tile}"))
        begins.append(at + STEP)
        at += 2 * STEP + pack
    return [bar for bar in products if bar[1] > bar[0]], lanes, begins


DRAWING = Sketch("Which set of weights is read and which is made, over time: with one set, and with two",
                 "24: PV0 reads P until it is done; then P1 is packed into it, while no product of the warpgroup runs. 25: while PV0 reads P even, the softmax packs P1 into P odd, and the next products follow at once. "
                 "All lengths are invented.")
products, lanes, begins = timelines(PACK)
DRAWING.text(2, 12, "24: one P", "name")
P = [(0, begins[0], "data", "P0"), (begins[0], begins[0] + STEP, "work", "PV0 reads"), (begins[0] + STEP, begins[0] + STEP + PACK, "copy", ""),
     (begins[0] + STEP + PACK, begins[1], "data", "P1"), (begins[1], begins[1] + STEP, "work", "PV1 reads"), (begins[1] + STEP, begins[1] + STEP + PACK, "copy", "")]
y = DRAWING.timeline(20, [("wgmma", products), ("lanes", lanes), ("P", P)], LEFT, FULL - 2, UNTIL)
products, lanes, begins = timelines(0)
DRAWING.text(2, y + 14, "25: two, in turns", "name")
even = [(0, begins[0], "data", "P0"), (begins[0], begins[0] + STEP, "work", "PV0 reads"), (begins[1], begins[1] + STEP, "copy", "P2 made")]
odd = [(begins[0], begins[0] + STEP, "copy", "P1 made"), (begins[0] + STEP, begins[1], "data", "P1"), (begins[1], begins[1] + STEP, "work", "PV1 reads")]
y = DRAWING.timeline(y + 22, [("wgmma", products), ("lanes", lanes), ("P even", even), ("P odd", odd)], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "s: softmax. The narrow bars of 24: P is packed.", "label")
DRAWING.text(2, y + 24, "The order is the kernels', the lengths are invented.", "label")
