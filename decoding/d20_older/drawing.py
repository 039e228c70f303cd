"""What of d06 and of d04 is in d20."""
from tools.site.sketch import Sketch

DRAWING = Sketch("d06's keys and d04's blocks",
                 "Left, d06: keys in pages, read by one block of eight warps, and an early launch that joins. Right, d20: the same keys, two blocks of four warps, and a launch behind.")
DRAWING.text(4, 14, "d06, sm_90", "label")
DRAWING.box(4, 22, 156, 22, "data", "keys in pages")
DRAWING.box(4, 52, 156, 22, "work", "eight warps")
DRAWING.box(4, 82, 156, 22, "work", "a launch that is there")
DRAWING.text(200, 14, "d20, sm_80", "label")
DRAWING.box(200, 22, 156, 22, "data", "keys in pages")
DRAWING.box(200, 52, 76, 22, "work", "four")
DRAWING.box(280, 52, 76, 22, "work", "four")
DRAWING.box(200, 82, 156, 22, "waste", "a launch behind")
