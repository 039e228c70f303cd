from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("Turns under a mask, walked from the first tile and from the last",
                 "Two sets of three rows, when each of three blocks of one head adds to which tile of queries. Walked from the block's first tile: the later blocks wait, hatched, until the block before "
                 "comes to their first tile. From the last tile: each begins one tile after the one before, and none waits again.")
BLOCKS, TILES, LEFT = 3, 6, 76


def turns(walk) -> tuple[list[tuple[str, list]], int]:
    """Of each block its boxes: a tile takes one unit, and nobody adds to it before the block before has."""
    added: dict[tuple[int, int], int] = {}
    rows, until = [], 0
    for block in range(BLOCKS):
        row, time = [], 0
        for tile in walk(block):
            begin = max(time, added.get((block - 1, tile), 0))
            if begin > time:
                row.append((time, begin, "waste", ""))
            row.append((begin, begin + 1, "work", str(tile)))
            time = added[block, tile] = begin + 1
        rows.append((f"keys {block}", row))
        until = max(until, time)
    return rows, until


walks = [("from the first tile", lambda block: range(2 * block, TILES)), ("from the last tile", lambda block: range(TILES - 1, 2 * block - 1, -1))]
drawn = [(name, *turns(walk)) for name, walk in walks]
y = 12.0
for name, rows, _ in drawn:
    DRAWING.text(2, y, name, "name")
    y = DRAWING.timeline(y + 8, rows, LEFT, FULL - 2, max(until for _, _, until in drawn)) + 18
DRAWING.text(2, y - 4, "A number is a tile of queries; hatched: the block waits.", "label")
