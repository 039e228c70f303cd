import itertools
import json

from tools import rungs
from tools.site.sketch import FULL, Sketch
from tools.site.traces import file_of

STEP, PACK, TILES = 4, 1, 3  # of a product or a softmax, of packing P; invented
LEFT = 66
NAMES = {"wgmma.ss": "QK", "wgmma.rs": "PV", "wgmma.wait_group": "wait", "vote.any": "softmax"}


def order(stage: str) -> str:
    """What warp 0 does in the recorded trace, of two tiles."""
    trace = json.loads(file_of(rungs.by_name()[stage]).read_text(encoding="utf-8"))
    names = [NAMES.get(trace["sites"][number]["instruction"]) for number, warp, *_ in trace["events"] if warp == 0]
    return " ".join(name for name, _ in itertools.groupby(filter(None, names)))


assert order("21_ring") == "QK wait softmax PV wait QK wait softmax PV wait", order("21_ring")
assert order("22_overlap") == "QK wait softmax QK PV wait softmax wait PV wait", order("22_overlap")

before = {"wgmma": [], "lanes": []}
for tile in range(TILES):
    at = 3 * STEP * tile
    before["wgmma"] += [(at, at + STEP, "work", f"QK{tile}"), (at + STEP, at + 2 * STEP, "waste", ""), (at + 2 * STEP, at + 3 * STEP, "work", f"PV{tile}")]
    before["lanes"] += [(at + STEP, at + 2 * STEP, "data", f"s{tile}")]
UNTIL = 3 * STEP * TILES

now = {"wgmma": [(0, STEP, "work", "QK0"), (STEP, 2 * STEP + PACK, "waste", "")], "lanes": [(STEP, 2 * STEP, "data", "s0"), (2 * STEP, 2 * STEP + PACK, "copy", "")]}
at = 2 * STEP + PACK
waits = []
for tile in range(1, TILES):
    now["wgmma"] += [(at, at + STEP, "work", f"QK{tile}"), (at + STEP, at + 2 * STEP, "work", f"PV{tile - 1}", True), (at + 2 * STEP, at + 2 * STEP + PACK, "waste", "")]
    now["lanes"] += [(at + STEP, at + 2 * STEP, "data", f"s{tile}", True), (at + 2 * STEP, at + 2 * STEP + PACK, "copy", "")]
    waits += [(at + STEP, "<1>"), (at + 2 * STEP, "<0>")]
    at += 2 * STEP + PACK
now["wgmma"].append((at, at + STEP, "work", f"PV{TILES - 1}"))

DRAWING = Sketch("One warpgroup, three tiles: a softmax between products, and a softmax under PV of the tile before",
                 "21: QK, softmax and PV of each tile one after the other; during each softmax the tensor cores have nothing from this warpgroup. 22: after the first tile QK of a tile and PV of the one before are requested "
                 "together. When QK is done, wait<1>, the softmax begins while PV runs; when PV is done, wait<0>, P is packed, and the next two products are started. All lengths are invented.")
DRAWING.text(2, 12, "21", "name")
y = DRAWING.timeline(20, list(before.items()), LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "22", "name")
top = y + 22
y = DRAWING.timeline(top, list(now.items()), LEFT, FULL - 2, UNTIL)
for time, words in waits:
    x = LEFT + (FULL - 2 - LEFT) * time / UNTIL
    DRAWING.line(x, top - 3, x, y - 3)
    DRAWING.text(x, y + 9, words, "label", "middle")
DRAWING.text(LEFT - 6, y + 9, "waits", "label", "end")
DRAWING.text(2, y + 28, "s: softmax. After it a narrow bar: P is packed.", "label")
DRAWING.text(2, y + 42, "Hatched: none of its products runs.", "label")
DRAWING.text(2, y + 56, "The order is the traces', the lengths are invented.", "label")
