"""What a lane holds, and what products read, from the tiles' shapes."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("What a lane holds during a tile, and what products read for 64 queries, in 83 and in 85",
                 "Two groups of bars. Registers of a lane, of 240: 83 has 64 of dK and dV, 128 of S and dP, 32 of P, together 224; 85 has 64, 64, 16, and 32 of K and V, together 176. Bytes that the products of 64 queries read from shared memory: 83 has 48 KiB for S and dP, "
                 "32 for dV and dK, 32 for dQ, together 112; 64 queries with K and V in shared memory 64, 32 and 48, together 144; 85 has 32, 32 and 48, together 112.")
HEAD_DIM, KEYS, WARPGROUPS = 64, 128, 2
LEFT = 106


def bars(parts: list[tuple[int, str, str]]) -> list[tuple]:
    found, at = [], 0
    for size, kind, words in parts:
        found.append((at, at + size, kind, words))
        at += size
    return found


def registers(queries: int, has_operands: bool) -> list[tuple]:
    of_queries = 2 * queries // 2  # S and dP: 64 keys x queries in f32, over 128 lanes
    parts = [(2 * HEAD_DIM // 2, "data", "dK dV"), (of_queries, "work", "S dP"), (queries // 4, "copy", "P")]
    return bars(parts + [(2 * 64 * HEAD_DIM // 2 // 128, "copy", "K V")] * has_operands)


def kib(queries: int, has_operands: bool) -> list[tuple]:
    """For 64 queries. An instruction reads 16 of the dimension that it sums over, 2 B each, of its 64 rows of A and of its columns of B."""
    instruction = lambda rows, columns: (rows + columns) * 16 * 2 / 1024
    tiles = WARPGROUPS * 64 / queries
    scores = 2 * HEAD_DIM // 16 * instruction(0 if has_operands else 64, queries) * tiles
    sums = 2 * queries // 16 * instruction(0, HEAD_DIM) * tiles  # P and dS are in registers
    of_dQ = KEYS // 16 * instruction(64, HEAD_DIM * 64 // (WARPGROUPS * 64) if queries == 64 else HEAD_DIM) * tiles
    return bars([(int(scores), "work", "S dP"), (int(sums), "data", "dV dK"), (int(of_dQ), "copy", "dQ")])


y = 12.0
for words, rows, until in (
        ("registers of a lane, of 240", [("83", registers(128, False)), ("85", registers(64, True))], 240),
        ("KiB that products read for 64 queries", [("83", kib(128, False)), ("64 queries", kib(64, False)), ("85", kib(64, True))], 150)):
    DRAWING.text(2, y, words, "name")
    y = DRAWING.timeline(y + 8, [(f"{name}: {row[-1][1]}", row) for name, row in rows], LEFT, FULL - 2, until) + 18
