"""Slots over time, when one warp is late once. The schedule follows from the rule of each rung; the lengths are
invented."""
from tools.site.sketch import Sketch

COPY = 3.0
WORK = (4.0, 4.0, 2.0, 2.0, 4.0)  # of each tile


def schedule(slots: int) -> tuple[dict[str, list], float]:
    """The copy of a tile begins when its slot is left; its products when it has landed and those before are done."""
    bars: dict[str, list] = {**{f"slot {slot}": [] for slot in range(slots)}, "mma": []}
    landed, done = [], [0.0]
    for tile, length in enumerate(WORK):
        # One copy at a time.
        begin = max(done[tile + 1 - slots] if tile >= slots else 0.0, landed[-1] if landed else 0.0)
        landed.append(begin + COPY)
        start = max(landed[tile], done[-1])
        if start > done[-1]:
            bars["mma"].append((done[-1], start, "waste", ""))
        done.append(start + length)
        bars["mma"].append((start, done[-1], "work", str(tile)))
        bars[f"slot {tile % slots}"] += [(begin, landed[tile], "copy", f"K{tile}"), (start, done[-1], "data", str(tile))]
    return bars, done[-1]


two, three = schedule(2), schedule(3)
until = max(two[1], three[1])
DRAWING = Sketch("Two slots and three, where some tiles take less time than a copy: a copy that is requested earlier has landed in time",
                 "Above, 13: with two slots the copy of tile t begins when tile t - 2 is done, and after two short tiles the products wait, hatched. Below, 14: with three slots it begins "
                 "a tile earlier, and they wait less. Dark: products; light in a slot: the tile is being read. The lengths are invented.")
DRAWING.text(2, 12, "13: two slots", "name")
y = DRAWING.timeline(20, list(two[0].items()), 52.0, 366.0, until)
DRAWING.text(2, y + 16, "14: three slots", "name")
y = DRAWING.timeline(y + 24, list(three[0].items()), 52.0, 366.0, until)
DRAWING.text(2, y + 12, "K: copy under way.  Hatched: waiting for it.", "label")
DRAWING.text(2, y + 26, "The lengths are invented, the rules are not.", "label")
