from tools.site.sketch import Sketch

DRAWING = Sketch("Who owns which query and which key; outlined: what a warp's four groups read at one moment",
                 "Left, p03: one query; group 0 has keys 0, 4, 8, group 1 keys 1, 5, 9 and so on, so the four groups of a warp read four different keys at a time, "
                 "and have to be joined at the end. Right, p04: group g owns query g and walks over all keys, so the four groups read the same key at a time. "
                 "Four groups are drawn, a block has sixteen.")

KEYS, TALL = 12, 22
LEFT, RIGHT, WIDE = 4, 200, 168
DRAWING.text(LEFT, 12, "p03: one query", "name")
DRAWING.text(LEFT, 28, "keys 0, 1, 2, ... in groups", "label")
DRAWING.grid(LEFT, 36, WIDE - 8, TALL, 1, KEYS, lambda row, key: ("data", "copy", "work", "empty")[key % 4], lambda row, key: str(key % 4),
             lambda row, key: 4 <= key < 8)
DRAWING.text(LEFT, 76, "4 groups, 4 keys: 512 B", "")
DRAWING.arrow(84, 84, 84, 100)
DRAWING.box(LEFT, 102, WIDE - 8, 26, "waste", "join 16 parts")
DRAWING.text(RIGHT, 12, "p04: a query per group", "name")
DRAWING.text(RIGHT, 28, "keys 0, 1, 2, ... for each", "label")
DRAWING.grid(RIGHT, 36, WIDE - 2, 4 * TALL, 4, KEYS, lambda group, key: ("data", "copy", "work", "empty")[group], lambda group, key: str(group),
             lambda group, key: key == 4)
DRAWING.text(RIGHT, 142, "4 groups, 1 key: 128 B", "")
DRAWING.text(LEFT, 142, "digits: the group, 4 of 16", "label")
