"""What a warp does where scores are wild, for two shares of a long and a short tile of queries: m06 and m07."""
from tools.site.sketch import FULL, Sketch

MAX, EXP, PAUSE = 1, 3, 1.5  # lengths: to look for the largest scores, to make weights, and between two tiles of queries; invented
SHARES = (8, 1, 8, 1)  # tiles of keys of a tile of queries, at n = 1024 under a mask
LEFT = 32


def warp(remembers: bool) -> tuple[list[tuple], list[float]]:
    """What it does, and where its tiles of queries begin."""
    bars, begins, at = [], [], 0.0
    for queries, tiles in enumerate(SHARES):
        at += PAUSE if queries else 0
        begins.append(at)
        for tile in range(tiles):
            is_surprised = tile == 1 and not (remembers and queries)
            for length, kind, words in [(EXP, "waste", str(tile))] * is_surprised + [(MAX, "data", ""), (EXP, "work", str(tile))]:
                bars.append((at, at + length, kind, words))
                at += length
    return bars, begins


DRAWING = Sketch("Tiles of queries of one warp with wild scores: before, each long one surprises it; now the first alone does",
                 "Two rows over time, of a warp with two shares of work: a tile of queries with eight tiles of keys and one with a single tile of keys, and both again. m06: in each of the long ones the weights of tile 1, the second, are made, are too large, and are made again; "
                 "from then on the warp looks for the largest scores before it makes weights. m07: it is surprised in the first tile of queries alone. It begins the next ones careful, remembers across the short one, and makes no weights twice. All lengths are invented.")
before, begins = warp(False)
until = before[-1][1]
for begin, tiles in zip(begins, SHARES):
    DRAWING.text(LEFT + (FULL - 2 - LEFT) * begin / until, 12, f"{tiles} tiles of keys" if tiles > 1 else "1", "label")
y = DRAWING.timeline(20, [("m06", before), ("m07", warp(True)[0])], LEFT, FULL - 2, until)
DRAWING.text(2, y + 12, "Numbered: weights, hatched: thrown away. Narrow: maxima.", "label")
DRAWING.text(2, y + 26, "The order is the kernels', the lengths are invented.", "label")
