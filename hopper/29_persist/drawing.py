from tools.site.sketch import FULL, Sketch

# Of a block: to start, to get Q and the first K, to multiply, to store O; invented.
START, LOAD, WORK, STORE, UNTIL = 2, 2, 10, 1, 30
LEFT = 46

sm, at = [], 0
for block in (0, 132):
    for length, kind, words in ((START, "waste", ""), (LOAD, "copy", ""), (WORK, "work", f"block {block}"), (STORE, "copy", "")):
        sm.append((at, at + length, kind, words))
        at += length
assert at == UNTIL

stays, at, rounds = [(0, START, "waste", ""), (START, START + LOAD, "copy", "")], START + LOAD, []
while at < UNTIL:
    rounds.append(at)
    stays.append((at, min(at + WORK, UNTIL), "work", f"tile {132 * (len(rounds) - 1)}" if at + WORK <= UNTIL else "264"))
    at += WORK
    if at < UNTIL:
        stays.append((at, at + STORE, "copy", ""))
        at += STORE
first, second, third = rounds
ahead = 2  # before the end of a round, when its last tiles of keys have been requested
Q = {"Q 0": [(START, first, "copy", ""), (first, first + WORK, "data", "Q of tile 0"), (first + WORK, second, "copy", "O"), (second, third - STORE - ahead, "empty", ""),
             (third - STORE - ahead, third - STORE, "copy", ""), (third - STORE, UNTIL, "data", "264")],
     "Q 1": [(0, second - STORE - ahead, "empty", ""), (second - STORE - ahead, second - STORE, "copy", ""), (second - STORE, second + WORK, "data", "Q of tile 132"),
             (second + WORK, third, "copy", "O"), (third, UNTIL, "empty", "")]}

DRAWING = Sketch("One SM over time: blocks that start and end, and a block that stays, with two stages for Q",
                 "28: a block starts, waits for its queries and first keys, multiplies and stores; then the next block does the same. 29: the block starts once. While it multiplies for tile 0 of the queries, its producer copies the "
                 "queries of tile 132 into the second stage; the block stores O over the old queries and goes on at once. All lengths are invented.")
DRAWING.text(2, 12, "28: a block for each tile of queries", "name")
y = DRAWING.timeline(20, [("SM", sm)], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 14, "29: one block, every 132nd tile", "name")
y = DRAWING.timeline(y + 22, [("SM", stays), *Q.items()], LEFT, FULL - 2, UNTIL)
DRAWING.text(2, y + 10, "Hatched: a block starts. Narrow: Q or O is copied,", "label")
DRAWING.text(2, y + 24, "in the SM's row with no product running.", "label")
DRAWING.text(2, y + 38, "The order is the kernels', the lengths are invented.", "label")
