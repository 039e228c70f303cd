"""One call of the ring on two cards, as it was recorded: docs/results/h200_ring_timeline.json."""
import json

from tools.paths import DOCS
from tools.site.sketch import FULL, Sketch

TRACE = json.loads((DOCS / "results" / "h200_ring_timeline.json").read_text(encoding="utf-8"))
KINDS = {"nccl": "copy", "flash_attention": "work", "merge_parts": "data"}
LEFT, RIGHT = 92.0, FULL - 2


def bars(card: int, word: str, begin: float, end: float) -> list[tuple]:
    """Of the kernels with that word in their names, what lies between two times."""
    found = [(max(k["begin"], begin) - begin, min(k["end"], end) - begin) for k in TRACE["us"][card] if word in k["name"]]
    return [(a, b, KINDS[word], "") for a, b in found if a < b]


def lasts(card: int, word: str) -> float:
    return sum(k["end"] - k["begin"] for k in TRACE["us"][card] if word in k["name"]) / 1e3


LAST = max(k["end"] for kernels in TRACE["us"] for k in kernels)
DRAWING = Sketch("One call on two cards: NCCL sends K and V beside the first kernel, and the merge follows the second one",
                 " ".join(f"Card {card}: NCCL's kernel for {lasts(card, 'nccl'):.2f} ms, attention twice for {lasts(card, 'flash_attention'):.1f} ms in all, "
                          f"the merge for {lasts(card, 'merge_parts'):.2f} ms." for card in range(len(TRACE["us"]))))


def panel(y: float, title: str, begin: float, end: float) -> float:
    DRAWING.text(2, y + 10, title, "name")
    rows = [(f"{name} {card}", bars(card, word, begin, end)) for card in range(len(TRACE["us"]))
            for name, word in (("NCCL", "nccl"), ("attention", "flash_attention"), ("merge", "merge_parts"))]
    y = DRAWING.timeline(y + 18, [row for row in rows if row[1]], LEFT, RIGHT, end - begin)
    for time in (begin, end):
        DRAWING.text(LEFT if time == begin else RIGHT, y + 10, f"{time / 1e3:.1f} ms", "label", "start" if time == begin else "end")
    return y + 26


below = panel(0, f"all of it, n = {TRACE['n']}, causal", 0, LAST)
panel(below, "the first two milliseconds", 0, 2000)
