"""Three documents, and the walks of blocks of keys over the tiles of queries that may see them."""
from tools.site.sketch import Sketch

N, KEYS, QUERIES, CUTS = 1024, 128, 64, (0, 300, 620, 1024)  # BC keys a block, BR queries a tile
document = lambda key: next((a, b) for a, b in zip(CUTS, CUTS[1:]) if a <= key < b)
sees = lambda query: (document(query)[0], query + 1)  # causal within documents
of_tile = lambda tile: [sees(query) for query in range(tile * QUERIES, (tile + 1) * QUERIES)]

DRAWING = Sketch("Queries downwards, keys to the right: three documents, and the walk of each block of keys over the tiles of queries that may see it",
                 "A square of 1024 keys and 1024 queries with three triangles below the diagonal, of documents that end at 300, 620 and 1024. Eight blocks of 128 keys stand side by side; of each the tiles of 64 queries of its walk are shaded, darker where every query sees every key. "
                 "A block in which a document ends walks on through the next one.")
X, Y, UNIT = 70, 34, 26
at = lambda key, query: (X + key / KEYS * UNIT, Y + query / KEYS * UNIT)
DRAWING.text(X, 12, f"{N} keys", "label")
DRAWING.text(X - 8, Y + 14, f"{N}", "label", "end")
DRAWING.text(X - 8, Y + 28, "queries", "label", "end")
for key in range(0, N, KEYS):
    for tile in range(N // QUERIES):
        rows = of_tile(tile)
        outside = min(a for a, _ in rows) >= key + KEYS or max(b for _, b in rows) <= key
        whole = max(a for a, _ in rows) <= key and min(b for _, b in rows) >= key + KEYS
        DRAWING.box(*at(key, tile * QUERIES), UNIT, UNIT / 2, "empty" if outside else "work" if whole else "copy")
for a, b in zip(CUTS, CUTS[1:]):
    DRAWING.line(*at(a, a), *at(b, b))
    DRAWING.line(*at(a, a), *at(a, b))
    DRAWING.line(*at(a, b), *at(b, b))
for i, (shade, words) in enumerate((("work", "all see all"), ("copy", "masked"), ("empty", "no walk"))):
    DRAWING.box(300, 44 + 44 * i, 26, 18, shade)
    DRAWING.text(300, 76 + 44 * i, words, "label")
