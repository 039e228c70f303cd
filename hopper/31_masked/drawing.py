from tools.site.sketch import FULL, Sketch

TILES, BLOCKS, CLUSTERS = 8, 2, 2  # n = 1024, a head
PAIRS = TILES // BLOCKS
# Tiles of keys that the pair's second block needs, and that the cluster copies.
visits = lambda pair: (pair + 1) * BLOCKS
# The kernel's order, one couple of pairs to a cluster.
shared = {cluster: [PAIRS - 1 - cluster, cluster] for cluster in range(CLUSTERS)}
in_order = {cluster: list(range(cluster, PAIRS, CLUSTERS)) for cluster in range(CLUSTERS)}
lengths = lambda order: [sum(map(visits, pairs)) for pairs in order.values()]
assert len(set(lengths(shared))) == 1 < len(set(lengths(in_order)))

DRAWING = Sketch("One head of 8 tiles under a causal mask: which tiles a pair of blocks computes and which pass; and who does which pair when",
                 f"A tile of queries computes with the tiles of keys up to its own; the one on the diagonal is masked, and visited first, as keys come from the end. A pair of blocks copies what its second block needs: of "
                 f"that the first block lets one tile pass. Two clusters that take pairs in their order have {lengths(in_order)[0]} and {lengths(in_order)[1]} tiles to do; taking long and short ones in turns they have "
                 f"{lengths(shared)[0]} each.")
X, Y, UNIT = 52, 34, 21


def kind(row: int, column: int) -> str:
    return "work" if column <= row else "waste" if column < visits(row // BLOCKS) else "empty"


DRAWING.text(X, 12, "tiles of keys", "label")
for i in range(TILES):
    DRAWING.text(X + (i + 0.5) * UNIT, 28, str(i), "label", "middle")
    DRAWING.text(X - 6, Y + i * UNIT + 15, str(i), "label", "end")
for pair in range(PAIRS):
    DRAWING.text(2, Y + (2 * pair + 1) * UNIT + 4, f"pair{pair}", "label")
DRAWING.grid(X, Y, TILES * UNIT, TILES * UNIT, TILES, TILES, kind, picked=lambda row, column: row == column)
for pair in range(1, PAIRS):
    DRAWING.line(X - 18, Y + 2 * pair * UNIT, X + TILES * UNIT + 6, Y + 2 * pair * UNIT)
DRAWING.arrow(X + TILES * UNIT, Y + TILES * UNIT + 10, X + 4, Y + TILES * UNIT + 10)
DRAWING.text(X + TILES * UNIT + 8, Y + TILES * UNIT + 14, "keys from the end", "label")
for i, (shade, picked, words) in enumerate((("work", False, "computed"), ("work", True, "and masked"), ("waste", False, "passes"), ("empty", False, "not visited"))):
    DRAWING.box(244, 44 + 24 * i, 16, 16, shade, "", picked)
    DRAWING.text(268, 56 + 24 * i, words, "label")

y = Y + TILES * UNIT + 42
until = max(lengths(in_order))
for name, order in (("Pairs in their order", in_order), ("Long and short in turns", shared)):
    DRAWING.text(2, y, name, "name")
    rows = []
    for cluster, pairs in order.items():
        bars, at = [], 0
        for pair in pairs:
            bars.append((at, at + visits(pair), "work", f"{visits(pair)}"))
            at += visits(pair)
        if at < until and order is in_order:
            bars.append((at, until, "waste", ""))
        rows.append((f"cluster {cluster}", bars))
    y = DRAWING.timeline(y + 8, rows, 72, FULL - 2, until) + 14
DRAWING.text(2, y, "Numbers: tiles of keys of a pair, its length here.", "label")
