"""Which rung the package takes for what models combine, at several head dimensions: docs/combinations.csv, of which docs/call.md has its
tables. Asked without a GPU, so as on the newest that there are rungs for: an H100 or H200.
    python3 python/tests/combinations_tests.py --write      makes the file anew; then: python3 -m tools.site.chapters"""

from __future__ import annotations

import csv
import functools
import io
import itertools
import sys
import unittest
from pathlib import Path

from flash_ladder import _native

FILE = Path(__file__).parents[2] / "docs/combinations.csv"
COLUMNS, TYPES = (40, 64, 96, 128, 192, 256), ("bf16", "fp16")
WISHES = {
    "gradients": "backward", "same bits": "deterministic", "LSE": "LSE", "one query": "nq=1", "causal": "causal", "grouped": "kv=4",
    "lengths": "lens_q=4096,37,2048,611 lens_k=4096,37,2048,611", "window": "window=1023,0", "softcap": "softcap=50", "ALiBi": "alibi",
    "sink": "sink", "intervals": "intervals=4096*0:4096", "lists of blocks": "blocks=1", "cache": "cache", "pages": "pages=64",
}  # fmt: skip
FUNCTIONS = ("softcap", "ALiBi", "sink")
MODELS = ("softcap, window, lengths, grouped", "sink, window, lengths, grouped")  # Gemma 2's, gpt-oss's
MANY = ["", "causal", "LSE", "grouped", "lengths", "window", *FUNCTIONS, "window, lengths", "softcap, window", "ALiBi, window", "sink, window",
        *(f"{each}, lengths" for each in FUNCTIONS), *MODELS, "intervals", "intervals, softcap", "lists of blocks", "lists of blocks, sink"]  # fmt: skip
FEW = ["", "cache", "pages", *(f"{each}, cache" for each in ("grouped", "window", *FUNCTIONS)), *(each.replace("lengths", "pages") for each in MODELS)]
OF_SAME_BITS = ["", "causal", "grouped", "lengths", "window", "window, lengths", *FUNCTIONS, *MODELS, "intervals", "lists of blocks"]
KINDS = {"forward": (MANY, []), "one query": (FEW, ["one query"]), "gradients": ([each for each in MANY if each != "LSE"], ["gradients"]),
         "same bits": (OF_SAME_BITS, ["gradients", "same bits"])}  # fmt: skip


def asked() -> list[tuple[str, str, tuple[str, ...]]]:
    """Of which kind, what is said of it, and all that it wishes: under a mask what has no other word for it."""
    found = []
    for kind, (wished, always) in KINDS.items():
        for what in wished:
            wishes = what.split(", ") if what else []
            masked = ["causal"] if kind != "one query" and wishes and not {"causal", "lists of blocks"} & {*wishes} else []
            found.append((kind, what or ("all keys" if kind == "one query" else "no mask"), (*always, *masked, *wishes)))
    return found


def problem(wishes: tuple[str, ...]) -> str:
    words = [WISHES[each] for each in WISHES if each in wishes and each not in ("same bits", "LSE")]
    return " ".join([*words, f"b=4 h=16 {'nk' if 'one query' in wishes else 'n'}=4096"])


@functools.cache
def taken(wishes: tuple[str, ...], d: int, element: str) -> str:
    """The rung, or nothing."""
    try:
        return _native.plan(f"{problem(wishes)} d={d} {element}", None, _native.EMULATOR, "LSE" in wishes, same_bits="same bits" in wishes).rung
    except NotImplementedError:
        return ""


def lacking(wishes: tuple[str, ...], d: int, element: str) -> str:
    """The fewest of the wishes that no rung takes together; what it takes to be a problem is among them anyway."""
    always = [each for each in ("gradients", "one query") if each in wishes]
    others = [each for each in wishes if each not in always]
    for count in range(len(others) + 1):
        for some in itertools.combinations(others, count):
            if not taken((*always, *some), d, element):
                return ", ".join(some or always)
    return ""


def made() -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["kind", "what", "problem", "d", *TYPES, *(f"{element}_lacks" for element in TYPES)])
    for kind, what, wishes in asked():
        for d in COLUMNS:
            writer.writerow([kind, what, problem(wishes), d, *(of(wishes, d, element) for of in (taken, lacking) for element in TYPES)])
    return text.getvalue()


class Combinations(unittest.TestCase):
    def test_the_file_is_what_the_package_takes(self):
        self.assertMultiLineEqual(FILE.read_text(encoding="utf-8"), made(), "\nRenewed by: python3 python/tests/combinations_tests.py --write")

    def test_what_is_lacking_is_no_more_than_that(self):
        self.assertEqual(lacking(("gradients", "causal", "same bits", "window", "ALiBi"), 128, "bf16"), "same bits, ALiBi")
        self.assertEqual(lacking(("causal", "window"), 128, "bf16"), "")
        self.assertEqual(taken(("causal", "intervals"), 36, "bf16"), "")


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(made(), encoding="utf-8")
        sys.exit()
    unittest.main()
