"""What lies in shared memory: 48 and 53."""
from tools.site.sketch import FULL, Sketch

LEFT, KIB = 44, (FULL - 46) / 200

DRAWING = Sketch("Shared memory of 48 and of 53: two Q and tiles of 128 keys, or one Q and tiles of 64 keys, which are as large",
                 "Two bars of 192 KiB. 48: two Q of 32 KiB, two tiles of K and two of V of 32 KiB. 53: one Q of 64 KiB, two tiles of K and two of V of 32 KiB.")
for y, rung, parts in ((24, "48", [(32, "work", "Q"), (32, "work", "Q")] + [(32, "copy", name) for name in ("K", "K", "V", "V")]),
                       (84, "53", [(64, "work", "Q")] + [(32, "copy", name) for name in ("K", "K", "V", "V")])):
    DRAWING.text(LEFT - 8, y + 17, rung, "name", "end")
    x = LEFT
    for size, kind, words in parts:
        DRAWING.box(x, y, size * KIB, 26, kind, words)
        x += size * KIB
DRAWING.text(LEFT, 16, "128 columns: tiles of 128 keys, 32 KiB", "label")
DRAWING.text(LEFT, 76, "256 columns: tiles of 64 keys, 32 KiB", "label")
