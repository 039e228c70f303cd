from tools.site.sketch import Sketch

# Which row and chunk of a 16x16 block of K a lane addresses: 06's expression, and this rung's.
ADDRESS = {"06": lambda lane: (lane % 16, lane // 16), "08": lambda lane: (lane % 8 + lane // 16 * 8, lane // 8 % 2)}


def register(address, keys: int, d: int) -> int:
    """Into which register the 8x8 matrix of those keys and columns goes: lanes 8i to 8i + 7 address matrix i."""
    return next(i for i in range(4) if address(8 * i) == (8 * keys, d))


numbers = {rung: [[register(address, keys, d) for d in range(2)] for keys in range(2)] for rung, address in ADDRESS.items()}
assert [pair[1] - pair[0] for pair in numbers["06"] + numbers["08"]] == [2, 2, 1, 1]  # neighbours only now

DRAWING = Sketch("Into which register each 8x8 matrix of K goes; a row is one operand of mma, which wants neighbours",
                 " ".join(f"{rung}: keys 0 to 7 lie in registers {pairs[0][0]} and {pairs[0][1]}, keys 8 to 15 in {pairs[1][0]} and {pairs[1][1]}." for rung, pairs in numbers.items())
                 + " mma takes two neighbouring registers, so 06 needs moves and 08 needs none.")
for x, rung in ((52, "06"), (242, "08")):
    DRAWING.text(x - 10, 12, f"{rung}: {'two moves per pair' if rung == '06' else 'no moves'}", "name")
    for d, words in enumerate(("d 0-7", "d 8-15")):
        DRAWING.text(x + 30 + 60 * d, 30, words, "label", "middle")
    for keys, words in enumerate(("keys 0-7", "8-15")):
        y = 36 + 46 * keys
        if rung == "06":
            DRAWING.text(x - 4, y + 26, words.replace("keys ", ""), "label", "end")
        for d in range(2):
            DRAWING.box(x + 60 * d, y, 60, 40, "work" if rung == "08" else ("data", "copy")[numbers[rung][keys][d] % 2], f"r{numbers[rung][keys][d]}", rung == "08")
    DRAWING.text(x - 10, 146, "{r0, r2}, {r1, r3}" if rung == "06" else "{r0, r1}, {r2, r3}")
DRAWING.text(2, 30, "keys", "label")
