"""What an instruction of dP reads from shared memory, and what a lane's arrays take, from the tiles' shapes."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("What an instruction of dP reads, and what the arrays of a lane take, in g01 and in g02",
                 "Two groups of bars. First, the bytes that m64n64k16 of dP reads from shared memory, beside the 4 KiB that shared memory gives in the 32 clocks of this instruction, 128 bytes in each. g01: 2 KiB of V and 2 KiB of dO, all of it. "
                 "g02: 2 KiB of dO, 64 bytes per clock; the other half is free, for V comes from registers. Second, the registers of a lane, with a dashed line at 240, which is all that it has. g01: dK 48, dV 48, S 32, dP 32, which takes those of dQ, dS of the tile before 16 and P 16, together 192. "
                 "g02: these and V, outlined, 24, together 216; the rest is for addresses. 94, if it had V there too: with 128 columns dK is 64, dV 64 and V 32, together 256, and V crosses the line.")
QUERIES, KEYS, SLICE, LANES = 64, 64, 16, 128  # of a warpgroup: rows of dO and of V; columns that an instruction takes
CLOCKS, PER_CLOCK, REGISTERS = 32, 128, 240
LEFT, RIGHT, TALL = 84.0, FULL - 2, 28


def bars(parts: list[tuple]) -> list[tuple]:
    found, at = [], 0
    for size, *rest in parts:
        found.append((at, at + size, *rest))
        at += size
    return found


def arrays(columns: int, keeps_V: bool) -> list[tuple]:
    """f32 or, of dS, P and V, two 16-bit numbers in a register."""
    of_keys, of_scores = columns * KEYS // LANES, QUERIES * KEYS // LANES
    parts = [(of_keys, "data", "dK"), (of_keys, "data", "dV"), (of_scores, "work", "S"), (of_scores, "work", "dP"),
             (of_scores // 2, "copy", "dS"), (of_scores // 2, "copy", "P")]
    return bars(parts + [(of_keys // 2, "copy", "V", True)] * keeps_V)


given, of_V, of_dO = CLOCKS * PER_CLOCK, KEYS * SLICE * 2, QUERIES * SLICE * 2
DRAWING.text(2, 12, "read from shared memory for m64n64k16 of dP", "name")
y = DRAWING.timeline(20, [("g01", bars([(of_V, "copy", "V, 2 KiB"), (of_dO, "work", "dO, 2 KiB")])),
                          ("g02", bars([(given - of_dO, "empty", "free"), (of_dO, "work", "dO, 2 KiB")]))], LEFT, RIGHT, given)
DRAWING.brace(LEFT, RIGHT, y, "all that it gives: 32 clocks of 128 B")
y += 44
DRAWING.text(2, y, "registers of a lane, of 240", "name")
rows = [("g01", arrays(96, False)), ("g02", arrays(96, True)), ("94 + V", arrays(128, True))]
all_of_94 = rows[-1][1][-1][1]
at = lambda register: LEFT + (RIGHT - LEFT) * register / all_of_94
y += 14
top = y
for name, row in rows:
    DRAWING.text(LEFT - 6, y + 18, f"{name}: {row[-1][1]}", "", "end")
    for begin, end, kind, words, *picked in row:
        DRAWING.box(at(begin), y, at(end) - at(begin), TALL, kind, f"{words}\n{end - begin}", *picked)
    y += TALL + 4
DRAWING.line(at(REGISTERS), top - 6, at(REGISTERS), y - TALL - 5, "dashed")  # not through V's words
DRAWING.line(at(REGISTERS), y - 3, at(REGISTERS), y + 3, "dashed")
DRAWING.text(at(REGISTERS), y + 14, "240", "label", "middle")
DRAWING.text(2, y + 31, "Outlined: V in registers, read once.", "label")
DRAWING.text(2, y + 44, "94 has 128 columns, and no room for V.", "label")
