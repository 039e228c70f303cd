"""What a block of 79 keeps in shared memory, and one of each variant of g03, beside what cards have."""
from tools.site.sketch import FULL, Sketch

LEFT, RIGHT, MOST = 62.0, FULL - 8, 200.0  # KiB
DRAWING = Sketch("What a block of 79 and of g03 keeps in shared memory, in KiB, beside what cards have",
                 "Three bars over an axis of KiB from 0 to 200, on which 99, what an RTX card gives a block, and 163, what an A100 gives, are marked. "
                 "79: K 32, V 32, P 32, two of dS 32, two of Q and of dO 65, together 193: more than an A100 gives. "
                 "g03 with tiles of 64 queries and 128 keys: K 32, V 32, P 16, dS 16, two of Q 32, one of dO 16, and 1 for LSE and D, together 145: within an A100. "
                 "g03 with 64 keys: K 16, V 16, P 8, dS 8, two of Q 32, one of dO 16, and 1, together 97: within an RTX card.")


def bar(*parts: tuple[float, str, str]) -> list[tuple]:
    begin, cells = 0.0, []
    for wide, kind, words in parts:
        cells.append((begin, begin + wide, kind, words))
        begin += wide
    return cells


y = DRAWING.timeline(10, [("79", bar((32, "data", "K"), (32, "data", "V"), (32, "work", "P"), (32, "work", "dS, dS"), (65, "copy", "Q, Q, dO, dO"))),
                          ("64x128", bar((32, "data", "K"), (32, "data", "V"), (16, "work", "P"), (16, "work", "dS"), (32, "copy", "Q, Q"), (17, "copy", "dO"))),
                          ("97 KiB", bar((16, "data", "K"), (16, "data", "V"), (8, "work", ""), (8, "work", ""), (32, "copy", "Q, Q"), (17, "copy", "dO")))],
                     LEFT, RIGHT, MOST) + 14
DRAWING.text(LEFT - 6, y + 4, "KiB", "label", "end")
DRAWING.number_line(y, 0, MOST, [(at, str(at)) for at in (0, 99, 163)], LEFT, RIGHT)
DRAWING.text(2, y + 36, "99: an RTX card.  163: an A100.", "label")
