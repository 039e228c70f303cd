"""Which heads the card works on at a time, and whose keys they read: 42's Schedule on an H200."""
from tools.site.sketch import Sketch

HEADS, KV_HEADS, N, TILE, SMS = 32, 8, 4096, 128, 132
GROUP, CLUSTERS, PAIRS = HEADS // KV_HEADS, SMS // 2, N // TILE // 2
AT_WORK = CLUSTERS // PAIRS  # heads whose pairs are all at work in the first round
assert AT_WORK == GROUP

DRAWING = Sketch(f"{HEADS} heads over {KV_HEADS} at n = {N}: the {CLUSTERS} clusters of the card work on four heads at a time, which are one group and read the same keys and values",
                 f"Above, the first eight heads of queries, {PAIRS} clusters for each; the first four are at work. Below, the heads of keys and values that they read from the L2 cache: the first four all read head 0, the next four, "
                 "later, head 1.")
WIDE, LEFT, SHOWN = 38, 44, 2 * GROUP
place = lambda head: LEFT + 40 * head
DRAWING.text(2, 34, "Q", "name")
DRAWING.text(2, 110, "K, V", "name")
DRAWING.text(LEFT, 12, f"at work: {GROUP} x {PAIRS} clusters", "label")
DRAWING.text(place(GROUP), 12, "their turn comes next", "label")
for head in range(SHOWN):
    DRAWING.box(place(head), 20, WIDE, 22, "work" if head < AT_WORK else "empty", f"{head}", head < AT_WORK)
for kv_head in range(SHOWN // GROUP):
    x = place(kv_head * GROUP)
    DRAWING.box(x, 94, GROUP * 40 - 2, 24, "copy" if kv_head == 0 else "data", f"head {kv_head}, in L2" if kv_head == 0 else f"head {kv_head}")
for head in range(SHOWN):
    DRAWING.arrow(place(head) + WIDE / 2, 92, place(head) + WIDE / 2, 44, "" if head < AT_WORK else "dashed")
DRAWING.text(2, 138, "From memory a group's K and V come once.", "label")
