from sketch import Sketch

DRAWING = Sketch("Who asks for a tile of K: 256 threads for 16 bytes each, or one thread for all of it",
                 "Left, 12: each of 256 threads issues cp.async, with an address in global and one in shared memory, and the tile lies in shared memory in rows of 256 bytes. Right, 13: thread 0 gives the copy "
                 "engine a tensor map and coordinates; the engine writes two panels of 64 columns, one after the other, and counts the bytes at the mbarrier full.")
DRAWING.text(2, 12, "12: cp.async", "name")
DRAWING.grid(2, 20, 160, 24, 1, 8, lambda row, i: "work", lambda row, i: f"t{i}" if i < 6 else ".." if i == 6 else "")
for i in range(8):
    DRAWING.arrow(12 + 20 * i, 46, 12 + 20 * i, 86)
DRAWING.text(82, 70, "4 x 256 x 16 B", "label", "middle")
DRAWING.box(2, 88, 160, 64, "copy", "K tile: 64 rows\nof 256 B")
DRAWING.text(2, 192, "8 per thread, K and V", "label")
DRAWING.text(196, 12, "13: TMA", "name")
DRAWING.box(196, 20, 54, 24, "work", "t0", True)
DRAWING.arrow(252, 32, 276, 32)
DRAWING.box(278, 20, 88, 24, "data", "engine, map")
DRAWING.arrow(300, 46, 250, 86)
DRAWING.line(322, 46, 322, 120)
DRAWING.box(196, 88, 100, 30, "copy", "panel 0")
DRAWING.box(196, 122, 100, 30, "copy", "panel 1")
DRAWING.line(322, 120, 322, 137)
DRAWING.arrow(322, 137, 298, 137)
DRAWING.text(196, 192, "64 rows of 128 B each", "label")
DRAWING.box(316, 154, 50, 22, "empty", "full")
DRAWING.arrow(346, 46, 346, 152)
DRAWING.text(364, 100, "bytes", "label", "end")
