"""Who computes what, and when: a causal square cut into 2 x 2 pieces for two cards; and the ring in which keys go round."""
from tools.site.sketch import FULL, Sketch

RANKS, CELL, X, Y = 2, 38.0, 64.0, 40.0
PIECES = 2 * RANKS
CARD = ("data", "work")


def owner(piece: int) -> int:
    """The card that has the piece: the rank-th from the front or from the back."""
    return min(piece, PIECES - 1 - piece)


def step(query: int, key: int) -> int:
    """When the keys arrive at the card of the queries."""
    return (owner(query) - owner(key)) % RANKS


WORK = [sum(0.5 if key == query else 1.0 for query in range(PIECES) for key in range(query + 1) if owner(query) == card) for card in range(RANKS)]

DRAWING = Sketch("A zigzag for two cards: the first and the last piece for one, the two between them for the other",
                 f"Four pieces of queries against four of keys, those behind a query's own masked. Card 0 has pieces 0 and 3, card 1 pieces 1 and 2. "
                 f"In step 0 each has its own keys, in step 1 the other's. Pieces of work: {WORK[0]:g} and {WORK[1]:g}. "
                 "Beside it a ring of four cards: in every step each sends its keys and values to the next, and on the way back the sums of their gradients behind them.")
DRAWING.text(X + PIECES * CELL / 2, 12, "keys, by piece", "label", "middle")
for piece in range(PIECES):
    DRAWING.text(X + (piece + 0.5) * CELL, Y - 8, f"K{piece}", "", "middle")
    DRAWING.text(X - 8, Y + (piece + 0.5) * CELL + 4, f"Q{piece} card {owner(piece)}", "label", "end")
DRAWING.grid(X, Y, PIECES * CELL, PIECES * CELL, PIECES, PIECES, lambda query, key: CARD[owner(query)] if key <= query else "empty",
             lambda query, key: str(step(query, key)) if key < query else "")
for piece in range(PIECES):  # half of it is behind the mask
    DRAWING.line(X + piece * CELL, Y + piece * CELL, X + (piece + 1) * CELL, Y + (piece + 1) * CELL)
    DRAWING.text(X + piece * CELL + 10, Y + (piece + 1) * CELL - 6, str(step(piece, piece)), "", "middle")
below = Y + PIECES * CELL
DRAWING.text(X, below + 16, "numbers: the step", "label")
for card, work in enumerate(WORK):
    DRAWING.box(2, below + 26 + 24 * card, 40 * work, 18, CARD[card], f"card {card}: {work:g} pieces")

x, y, wide, tall, across, down = 238.0, 40.0, 46.0, 30.0, 82.0, 120.0
at = ((x, y), (x + across, y), (x + across, y + down), (x, y + down))
DRAWING.text(x + (across + wide) / 2, 12, "keys go round", "label", "middle")
for card, (left, top) in enumerate(at):
    DRAWING.box(left, top, wide, tall, "data", f"card {card}")
DRAWING.arrow(x + wide, y + tall / 2, x + across, y + tall / 2)
DRAWING.arrow(x + across + wide / 2, y + tall, x + across + wide / 2, y + down)
DRAWING.arrow(x + across, y + down + tall / 2, x + wide, y + down + tall / 2)
DRAWING.arrow(x + wide / 2, y + down, x + wide / 2, y + tall)
for i, words in enumerate(("K, V", "back: also", "dK, dV")):
    DRAWING.text(x + (across + wide) / 2, y + (down + tall) / 2 - 10 + 18 * i, words, "label" if i == 1 else "", "middle")
assert x + across + wide <= FULL
