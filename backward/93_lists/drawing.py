"""Lists of blocks of keys, one for each tile of queries, and the same blocks by tiles of keys: 93."""
from tools.site.sketch import Sketch

LISTS = ((0, 3, 5), (1, 2), (0, 2, 4), (3,), (1, 4, 5), (0, 5))
KEYS = 6
DRAWING = Sketch("Lists of blocks of keys by rows of queries, and the same blocks read by columns",
                 "Left a square of six tiles of queries by six tiles of keys, of which fourteen are met; beside each row stands its list. Right each tile of keys has a walk: the numbers of the tiles of queries that have it in their list, in order.")
X, Y, UNIT = 10, 26, 22
DRAWING.text(X, 14, "lists: which keys", "label")
for query, keys in enumerate(LISTS):
    for key in range(KEYS):
        DRAWING.box(X + UNIT * key, Y + UNIT * query, UNIT - 2, UNIT - 2, "work" if key in keys else "empty", "")
    DRAWING.text(X + UNIT * KEYS + 6, Y + UNIT * query + 15, " ".join(map(str, keys)), "label")
RIGHT = 205
DRAWING.text(RIGHT, 14, "walks: which queries", "label")
for key in range(KEYS):
    DRAWING.box(RIGHT, Y + UNIT * key, UNIT - 2, UNIT - 2, "copy", str(key))
    for i, query in enumerate(q for q, keys in enumerate(LISTS) if key in keys):
        DRAWING.box(RIGHT + 10 + UNIT * (i + 1), Y + UNIT * key, UNIT - 2, UNIT - 2, "work", str(query))
