import heapq

from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Three heads of three blocks on three SMs",
                 "Two sets of three rows, what each of three SMs does over time. By heads: the last head's blocks begin together, so its longest one ends last, when the others have nothing left. By length, of all three "
                 "heads: all end at the same time.")
HEADS, BLOCKS, SMS, LEFT = 3, 3, 3, 76


def schedule(jobs: list[tuple[int, int]]) -> list[list[tuple[int, int, str, str]]]:
    """Of each SM its boxes: whoever is free first takes the next job, of a head and so many tiles."""
    free, rows = [(0, sm) for sm in range(SMS)], [[] for _ in range(SMS)]
    for head, tiles in jobs:
        begin, sm = heapq.heappop(free)
        rows[sm].append((begin, begin + tiles, "work" if head == HEADS - 1 else "data", str(tiles)))
        heapq.heappush(free, (begin + tiles, sm))
    return rows


walks = [(head, 2 * (BLOCKS - block)) for head in range(HEADS) for block in range(BLOCKS)]
orders = [("head by head", schedule(walks)), ("longest first", schedule(sorted(walks, key=lambda walk: -walk[1])))]
until = max(row[-1][1] for _, rows in orders for row in rows)
y = 12.0
for name, rows in orders:
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, [(f"SM {sm}", row) for sm, row in enumerate(rows)], LEFT, FULL - 2, until) + 18
DRAWING.text(2, y - 4, "A number is a block's tiles; the last head's are dark.", "label")
