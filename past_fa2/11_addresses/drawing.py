from tools.site.sketch import Sketch

ROW_BYTES, TILE_ROWS = 256, 64
BITS = 16


def bits(step: int, count: int) -> range:
    """Which bits of an address `count` steps of that size change."""
    low = step.bit_length() - 1
    return range(low, low + max((count - 1).bit_length(), 1))


CHANGES = (("d_slice * 32", "XOR", bits(32, 8)), ("key_tile rows", "+", bits(8 * ROW_BYTES, 8)), ("slot", "+", bits(TILE_ROWS * ROW_BYTES, 2)))
assert not set(CHANGES[0][2]) & set(bits(ROW_BYTES, 8))  # the XOR leaves the row, from which the swizzle is made, alone

DRAWING = Sketch("Which bits of a shared address each step changes: none touches another's",
                 "A shared address of 16 bits: 0 to 3 a byte within a chunk, 4 to 7 the chunk, swizzled with the row, 8 to 10 the row modulo 8, 11 to 13 the row beyond, 14 the slot. "
                 + " ".join(f"{name} changes bits {changed[0]} to {changed[-1]}." for name, _, changed in CHANGES))
UNIT, X = 17.0, 94.0
place = lambda bit: X + (BITS - 1 - bit) * UNIT
for bit in range(BITS):
    DRAWING.text(place(bit) + UNIT / 2, 12, str(bit), "label", "middle")
    DRAWING.box(place(bit), 18, UNIT, 20, "data" if bit < 4 else "copy" if bit < 8 else "empty" if bit < 14 else "data", "")
for low, high, name in ((0, 3, "byte"), (4, 7, "chunk"), (8, 13, "row"), (14, 15, "slot")):
    DRAWING.brace(place(high) + 2, place(low) + UNIT - 2, 42, name)
for i, (name, how, changed) in enumerate(CHANGES):
    y = 72 + 28 * i
    DRAWING.text(2, y + 14, name, "label")
    DRAWING.box(place(changed[-1]), y, len(changed) * UNIT, 20, "work", how if len(how) * 7 < len(changed) * UNIT else "", True)
DRAWING.text(2, 168, "row % 8 is bits 8 to 10: no step changes them", "label")
