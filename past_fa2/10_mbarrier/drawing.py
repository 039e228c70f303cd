"""Two warps with the same invented work, under both rules. The schedule follows from the rules; the lengths are no
measurement."""
from tools.site.sketch import Sketch

WORK = {"warp 0": (5, 3, 5, 3), "warp 1": (3, 5, 3, 5)}  # time that each tile takes
COPY = 2.0


def together() -> tuple[dict, tuple]:
    """A barrier after each tile: all begin when the slowest has finished."""
    bars, begin, barriers = {name: [] for name in WORK}, 0.0, []
    for tile in range(4):
        end = begin + max(work[tile] for work in WORK.values())
        for name, work in WORK.items():
            bars[name].append((begin, begin + work[tile], "work", f"tile {tile}"[-6:]))
            if begin + work[tile] < end:
                bars[name].append((begin + work[tile], end, "waste", ""))
        barriers.append(end)
        begin = end
    return bars, tuple(barriers)


def full_and_empty() -> dict:
    """Two slots: the copy of tile t may begin when all have finished tile t - 2, and tile t when its copy has
    landed."""
    done = {name: [] for name in WORK}
    bars: dict[str, list] = {"slot 0": [], "slot 1": [], **{name: [] for name in WORK}}
    landed = []
    for tile in range(4):
        begin = 0.0 if tile < 2 else max(times[tile - 2] for times in done.values())
        landed.append(0.0 if tile < 2 else begin + COPY)
        if tile >= 2:
            bars[f"slot {tile % 2}"].append((begin, begin + COPY, "copy", f"{tile}"))
        for name, work in WORK.items():
            start = max(landed[tile], done[name][-1] if done[name] else 0.0)
            if done[name] and start > done[name][-1]:
                bars[name].append((done[name][-1], start, "waste", ""))
            bars[name].append((start, start + work[tile], "work", f"tile {tile}"))
            done[name].append(start + work[tile])
    return bars


first, barriers = together()
second = full_and_empty()
until = max(bar[1] for bars in (*first.values(), *second.values()) for bar in bars)
DRAWING = Sketch("The same work under two rules: all wait for the slowest, or only for the data",
                 "Above, 09: after each tile both warps meet at a barrier, and the faster one waits, hatched. Below, 10: a warp waits only until its slot is full, and a slot is filled again when "
                 "both warps have left it. The warps drift apart by up to a tile, and finish earlier. The lengths are invented.")
DRAWING.text(2, 12, "09: all meet after a tile", "name")
y = DRAWING.timeline(22, list(first.items()), 52.0, 366.0, until, barriers)
DRAWING.text(2, y + 16, "10: full and empty, two slots", "name")
y = DRAWING.timeline(y + 24, list(second.items()), 52.0, 366.0, until)
DRAWING.text(2, y + 12, "Slots: copies of tiles 2 and 3. Hatched: waiting.", "label")
DRAWING.text(2, y + 26, "The lengths are invented, the rules are not.", "label")
