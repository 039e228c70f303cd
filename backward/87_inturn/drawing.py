from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Turns of two heads that share keys, under a mask: one head after the other, and both of a tile",
                 "Two sets of three rows, when each of three blocks of keys adds to which tile of queries of head a or b. One head after the other: the blocks of later keys have fewer tiles, are soon done with head a, "
                 "and wait, hatched, until the first block comes to head b. Both heads of a tile before the next tile: each begins one addition after the one before, and none waits again.")
BLOCKS, TILES, HEADS, LEFT = 3, 6, "ab", 64


def turns(walk) -> tuple[list[tuple[str, list]], int]:
    """Of each block its boxes: an addition takes one unit, and nobody adds before the block before has."""
    added: dict[tuple[int, int, str], int] = {}
    rows, until = [], 0
    for block in range(BLOCKS):
        row, time = [], 0
        for tile, head in walk(range(TILES - 1, 2 * block - 1, -1)):
            begin = max(time, added.get((block - 1, tile, head), 0))
            if begin > time:
                row.append((time, begin, "waste", ""))
            row.append((begin, begin + 1, "work" if head == "a" else "copy", f"{tile}{head}"))
            time = added[block, tile, head] = begin + 1
        rows.append((f"keys {block}", row))
        until = max(until, time)
    return rows, until


walks = [("one head after the other", lambda tiles: ((tile, head) for head in HEADS for tile in tiles)), ("both heads of a tile", lambda tiles: ((tile, head) for tile in tiles for head in HEADS))]
drawn = [(name, *turns(walk)) for name, walk in walks]
y = 12.0
for name, rows, _ in drawn:
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, rows, LEFT, FULL - 2, max(until for _, _, until in drawn)) + 18
DRAWING.text(2, y - 4, "A tile of queries and its head; hatched: the block waits.", "label")
