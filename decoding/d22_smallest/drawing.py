"""The bits of f16, with an exponent above four bits and with none."""
from tools.site.sketch import Sketch

DRAWING = Sketch("Bits of f16: with an exponent above four bits, and with none",
                 "Three times sixteen bits. On top the exponent of 1024 stands above four bits u: the number is 1024 + u, and 1032 has to be taken away. Below it the exponent is zero: the number is u times 2 to the -24. At the bottom u stands four bits higher: u times 2 to the -20.")
CELL = 13


def bits(top: int, name: str, exponent: str, at: int, what: str) -> None:
    DRAWING.text(4, top - 6, name, "label")
    kind = lambda column: "work" if at <= 15 - column < at + 4 else "copy" if 1 <= column < 6 and exponent[column - 1] == "1" else "empty"
    DRAWING.grid(4, top, 16 * CELL, 20, 1, 16, lambda r, c: kind(c), lambda r, c: "u" if at <= 15 - c < at + 4 else exponent[c - 1] if 1 <= c < 6 else "0")
    DRAWING.text(222, top + 14, what)


bits(22, "d17 in f16", "11001", 0, "1024 + u, less 1032")
bits(72, "here", "00000", 0, "u times 2^-24")
bits(122, "here, as it stands", "00000", 4, "u times 2^-20")
