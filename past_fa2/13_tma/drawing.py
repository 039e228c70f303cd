"""Who requests, and when. The schedule below follows from the rule of two slots, which both rungs have; its lengths are invented."""
from tools.site.sketch import Sketch

PRODUCTS, COPY = 4.0, 3.0


def schedule(requesting: float) -> tuple[dict[str, list], float]:
    """Three tiles: whoever multiplies requests the next tile first. Its slot has been left by then, in both rungs."""
    bars: dict[str, list] = {"warps": [], "copies": []}
    at = 0.0
    for tile in range(3):
        if requesting:
            bars["warps"].append((at, at + requesting, "waste", ""))
        bars["copies"].append((at + requesting, at + requesting + COPY, "copy", f"K{tile + 1}"))
        bars["warps"].append((at + requesting, at + requesting + PRODUCTS, "work", f"tile {tile}"))
        at += requesting + PRODUCTS
    return bars, at


before, until = schedule(1.0)
after, _ = schedule(0.0)
DRAWING = Sketch("Who requests a tile of K: 256 threads 16 bytes each, or one thread all of it",
                 "Left, 12: each of 256 threads issues cp.async, with an address in global and one in shared memory, and the tile lies in shared memory in rows of 256 bytes. Right, 13: thread 0 gives the copy "
                 "engine a tensor map and coordinates; the engine writes two panels of 64 columns, one after the other, and counts the bytes at the mbarrier full. Below, the same over time: in 12 all warps spend time on requesting, hatched, before they multiply; in 13 "
                 "they do not. The copy of the next tile begins no earlier after the last one's end in either. The lengths are invented.")
DRAWING.text(2, 12, "12: cp.async", "name")
DRAWING.grid(2, 20, 160, 24, 1, 8, lambda row, i: "work", lambda row, i: f"t{i}" if i < 6 else ".." if i == 6 else "")
for i in range(8):
    DRAWING.arrow(12 + 20 * i, 46, 12 + 20 * i, 86)
DRAWING.text(82, 70, "4 x 256 x 16 B", "label", "middle")
DRAWING.box(2, 88, 160, 64, "copy", "K tile: 64 rows\nof 256 B")
DRAWING.text(2, 192, "8 per thread, K and V", "label")
DRAWING.text(196, 12, "13: TMA", "name")
DRAWING.box(196, 20, 54, 24, "work", "t0", True)
DRAWING.arrow(252, 32, 276, 32)
DRAWING.box(278, 20, 88, 24, "data", "engine, map")
DRAWING.arrow(300, 46, 250, 86)
DRAWING.line(322, 46, 322, 120)
DRAWING.box(196, 88, 100, 30, "copy", "panel 0")
DRAWING.box(196, 122, 100, 30, "copy", "panel 1")
DRAWING.line(322, 120, 322, 137)
DRAWING.arrow(322, 137, 298, 137)
DRAWING.text(196, 192, "64 rows of 128 B each", "label")
DRAWING.box(316, 154, 50, 22, "empty", "full")
DRAWING.arrow(346, 46, 346, 152)
DRAWING.text(364, 100, "bytes", "label", "end")
y = DRAWING.timeline(208, [(f"12: {name}", bars) for name, bars in before.items()], 72.0, 366.0, until)
y = DRAWING.timeline(y + 8, [(f"13: {name}", bars) for name, bars in after.items()], 72.0, 366.0, until)
DRAWING.text(2, y + 12, "Hatched: requesting. It is cheap now, not early.", "label")
DRAWING.text(2, y + 26, "The lengths are invented, the rules are not.", "label")
