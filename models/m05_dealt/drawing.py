"""What six blocks get of thirteen heads of three tiles of queries under a mask, in m02 and here."""
from tools.site.sketch import FULL, Sketch

DRAWING = Sketch("The last rounds of blocks under a mask, in shares and in tiles",
                 "Two groups of six rows, what six blocks do over time, for thirteen heads of 512 queries. Above, m02: a block gets the same share in each of three rounds, and in a fourth only two get one, the second of them half a one; the others are idle. "
                 "Below, m05: from round to round a block gets the next share; then the tiles of queries of the last three heads are dealt out one by one, the longest first, to and fro, and all blocks end nearly together.")
BLOCKS, HEADS, LOOSE, LEFT = 6, 13, 3, 60
SHARES = ("4 + 2", "3 + 3", "4 + 2")  # of two heads of 512 queries, in tiles of keys
whole = [SHARES[number % 3] for number in range((HEADS - 1) // 2 * 3)] + ["4 + 2", "3"]  # the last head's middle is alone
singles = [str(tiles) for tiles in (4, 3, 2) for _ in range(LOOSE)]
before = (HEADS - LOOSE) // 2 * 3
mixed = before // BLOCKS  # the round in which single tiles begin


def row(block: int, dealt: list[str], goes_round: bool) -> list[tuple[int, int, str, str]]:
    """What a block gets, one piece in each round; it moves on by one while there are shares for all, and then it goes to and fro."""
    spans, at = [], 0
    for turn in range((len(dealt) + BLOCKS - 1) // BLOCKS):
        place = (block + min(turn, mixed)) % BLOCKS if goes_round else block
        number = turn * BLOCKS + (BLOCKS - 1 - place if goes_round and turn > mixed else place)
        if number < len(dealt):
            begin, at = at, at + sum(map(int, dealt[number].split(" + ")))
            spans.append((begin, at, "work" if goes_round and number >= before else "data", dealt[number]))
    return spans


y, until = 12.0, 0
for name, dealt, goes_round in (("m02: shares alone", whole, False), ("m05: shares, then single tiles", whole[:before] + singles, True)):
    DRAWING.text(2, y, name, "name")
    rows = [row(block, dealt, goes_round) for block in range(BLOCKS)]
    ends = max(spans[-1][1] for spans in rows)
    until = until or ends
    lanes = [(f"block {block}", spans + ([(spans[-1][1], ends, "waste", "")] if spans[-1][1] < ends else [])) for block, spans in enumerate(rows)]
    y = DRAWING.timeline(y + 8, lanes, LEFT, FULL - 2, until) + 18
DRAWING.text(2, y - 4, "Numbers: tiles of keys. Dark: single tiles of the last", "label")
DRAWING.text(2, y + 9, "three heads. Hatched: nothing left to do.", "label")
