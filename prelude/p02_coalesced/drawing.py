from tools.site.sketch import Sketch

DRAWING = Sketch("One load of a warp: lines of 128 bytes that L1 looks up, and what is used of them",
                 "Left, p01: 32 lanes read 2 bytes from 32 different lines, 64 bytes used of 4096. Right, p02: lanes 0 to 7 read one line, 16 bytes each, and so do "
                 "lanes 8 to 15, 16 to 23 and 24 to 31: four lines, all 512 bytes used.")

LINES, LEFT, RIGHT, WIDE = 10, 34, 200, 130
DRAWING.text(LEFT, 12, "p01: 32 lines, 64 B", "name")
DRAWING.text(RIGHT, 12, "p02: 4 lines, 512 B", "name")
for i in range(LINES):
    y = 22 + 18 * i
    if i == LINES - 2:
        DRAWING.text(LEFT + WIDE / 2, y + 12, "...", "", "middle")
        continue
    lane = 31 if i == LINES - 1 else i
    DRAWING.text(LEFT - 4, y + 12, str(lane), "label", "end")
    DRAWING.box(LEFT, y, WIDE, 14, "waste")
    DRAWING.box(LEFT, y, 4, 14, "work")  # 2 of 128 bytes, drawn twice as wide as they are
for group in range(4):
    y = 22 + 34 * group
    DRAWING.grid(RIGHT, y, 164, 18, 1, 8, lambda row, eighth: "work", lambda row, eighth: str(8 * group + eighth))
    DRAWING.text(RIGHT, y + 29, f"key {group}, columns 0 to 63", "label")
DRAWING.text(RIGHT, 176, "numbers: lanes", "label")
DRAWING.text(RIGHT, 190, "hatched: looked up, unused", "label")
