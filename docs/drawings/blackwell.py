"""Who does what in a block: 34_under's twelve warps on Hopper, and FlashAttention-4's sixteen on Blackwell."""
from tools.site.sketch import FULL, Sketch

LEFT, WIDE, GAP = 2.0, 176.0, 12.0
RIGHT = LEFT + WIDE + GAP

DRAWING = Sketch("Who does what in a block: twelve warps of 34_under on Hopper, sixteen of FlashAttention-4 on Blackwell",
                 "On the left 34_under: a warpgroup whose one warp copies, and two warpgroups that each ask for products, make weights, correct O and store it, with S, P and O in their registers. "
                 "On the right FlashAttention-4: one warp copies, one thread of one warp asks for all products, two warpgroups make weights, a third one corrects O, one warp stores, one is spare; S, P and O of both tiles lie in tensor memory.")
DRAWING.text(LEFT, 12, "34_under, Hopper", "name")
DRAWING.text(RIGHT, 12, "FlashAttention-4, B200", "name")

def column(x, boxes):
    y = 20.0
    for tall, kind, words in boxes:
        DRAWING.box(x, y, WIDE, tall, kind, words)
        y += tall + 4
    return y

column(LEFT, [(32, "copy", "1 warp copies,\n3 stand by"),
              (98, "work", "4 warps, rows 0 to 63:\nask for QK and PV,\nmake weights,\ncorrect O,\nstore O"),
              (98, "work", "4 warps, rows 64 to 127:\nask for QK and PV,\nmake weights,\ncorrect O,\nstore O")])
column(RIGHT, [(32, "copy", "1 warp copies"),
               (32, "data", "1 warp, of it 1 thread:\nasks for all QK and PV"),
               (32, "work", "4 warps: weights of\nrows 0 to 127"),
               (32, "work", "4 warps: weights of\nrows 128 to 255"),
               (32, "work", "4 warps: correct O,\nboth tiles"),
               (20, "copy", "1 warp stores O"),
               (20, "empty", "1 warp spare")])
DRAWING.text(LEFT, 280, "where S, P and O are:", "label")
DRAWING.box(LEFT, 286, WIDE, 46, "data", "registers of the warps\nthat work on them")
DRAWING.box(RIGHT, 286, WIDE, 46, "data", "tensor memory:\n128 lanes, 512 columns\nof 32 bits, for two tiles")
