"""Pages say in sentences which rung the package takes. Each rung is read where the page names it, and the library is asked. Without a GPU, so
as on the newest that there are rungs for: an H100 or H200."""

from __future__ import annotations

import re
import unittest
from pathlib import Path

from flash_ladder import _cache, why

ROOT = Path(__file__).parents[2]
RUNG = r"([a-z]?\d\d\w*)"  # by its name, or its number alone
ONE = "b=1 h=32 kv=8 nq=1 nk=8192 bf16"
TEXTS, BYTES, NIBBLES = (f"b=4 h=32 kv=8 nq=1 nk=8192 cache {words}" for words in ("bf16", "types=bf16,e4m3,bf16", "types=bf16,s4,bf16 scales=token"))
MANY, BACK = "b=4 h=16 n=4096 bf16", "backward b=4 h=16 n=4096 bf16"
LONG = "b=1 h=16 n=32768 bf16"
# A page, words of it in which each @ is a rung, and for each of these the problems that it takes.
SAID = (
    ("docs/call.md", "are 64 at most, @ runs, and with a softcap, ALiBi or a sink @;",
     [ONE, ONE.replace("nq=1 ", "nq=16 ")], [f"{ONE} {words}" for words in ("softcap=50", "alibi", "sink")]),
    ("docs/call.md", "Where tiles are few and keys are many @ and @ run up to 1024: with 66 tiles of 128 queries at most",
     [ONE.replace("nq=1 ", "nq=256 ")], [ONE.replace("nq=1 ", "nq=256 ") + " sink"]),
    ("docs/call.md", "With 128 columns and many tiles of queries, and no mask, @ is a little faster than @,", [LONG], [MANY.replace("b=4", "b=1")]),
    ("docs/call.md", "share keys in pairs and there are 800 tiles of queries or more, @ is taken", [f"{LONG} causal", "b=4 h=32 kv=16 n=4096 bf16 causal"]),
    ("docs/call.md", "with heads of 104 to 128 columns (@), of 72 to 96 (@) or up to 64 (@), and under a softcap, slopes and sinks (@); "
     "with heads of 136 to 256 columns, too, with all of these (@)",
     [BACK, f"{BACK} d=104"], [f"{BACK} d=72", f"{BACK} d=96"], [f"{BACK} d=64", f"{BACK} d=40"],
     [f"{BACK} {words}" for words in ("softcap=50", "alibi", "sink")], [f"{BACK} d=136", f"{BACK} d=256 softcap=50"]),
    ("docs/call.md", "documents packed into one row, up to 128 columns (@), or with lists of blocks, of 72 to 128 columns (@)",
     [f"{BACK} documents=5", f"{BACK} documents=5 d=64"], [f"{BACK} blocks=0.5", f"{BACK} blocks=0.5 d=72"]),
    ("docs/call.md", "add in the order of their keys: @ with heads of 72 to 128 columns, @ up to 64",
     [f"{BACK} deterministic", f"{BACK} d=72 deterministic"], [f"{BACK} d=64 deterministic"]),
    ("docs/call.md", "of several texts, @.", [f"{TEXTS} softcap=50", f"{TEXTS} sink"]),
    ("docs/my-model.md", "| **a softcap**, with or without a sink | @ |", [f"{MANY} softcap=50", f"{MANY} softcap=50 sink causal"]),
    ("docs/my-model.md", "| **ALiBi**, without a softcap | @ |", [f"{MANY} alibi causal"]),
    ("docs/my-model.md", "any function of FlexAttention's | @; 59_tiles, @ |", [f"{MANY} documents=5"], [f"{MANY} blocks=0.5"]),
    ("docs/my-model.md", "are the rows of a tile, up to 64 of them: @ |", [ONE.replace("nq=1 ", "nq=16 ")]),
    ("docs/my-model.md", "| ... **a softcap, ALiBi, sinks** | @, and in texts of unlike lengths @ |",
     [f"{ONE} {words}" for words in ("softcap=50", "alibi", "sink")], [f"{TEXTS} {words}" for words in ("softcap=50", "alibi", "sink")]),
    ("docs/my-model.md", "| **gradients** | @, with any lengths, groups and windows, and with 72 to 96 columns @; @ at d = 64; "
     "under a softcap, ALiBi and sinks @; with more than 128 columns @; with the same bits in each run @ and @;",
     [BACK, f"{BACK} kv=4 causal window=1023,0"], [f"{BACK} d=96"], [f"{BACK} d=64"], [f"{BACK} softcap=50"], [f"{BACK} d=256"],
     [f"{BACK} deterministic"], [f"{BACK} d=64 deterministic"]),
    ("models/README.md", "the package takes @: under a mask up to 4096 keys, without one up to 1024 tiles of 128 queries, and there with up to 96 columns "
     "always. Without a mask and with more tiles it takes @; under one with more keys, or where heads share keys by twos and there are 800 tiles, @.",
     ["b=2 h=16 n=4096 bf16 causal", "b=2 h=16 n=4096 bf16", f"{LONG} d=96"], [LONG], [f"{LONG} causal", "b=4 h=32 kv=16 n=4096 bf16 causal"]),
    ("decoding/README.md", "up to 64, and of few tiles beside many keys more, it takes @, with a softcap, ALiBi or a sink @;",
     [ONE, ONE.replace("nq=1 ", "nq=16 ")], [f"{ONE} {words}" for words in ("softcap=50", "alibi", "sink")]),
    ("decoding/README.md", "is read by @, up to 16 rows, with a softcap or ALiBi by @;", [TEXTS, TEXTS.replace("nq=1 ", "nq=4 ")],
     [f"{TEXTS} softcap=50", f"{TEXTS} alibi"]),
    ("decoding/README.md", "A cache of bytes is read by @, with scales of columns by @ and of keys by @; one of four bits by @.",
     [BYTES], [f"{BYTES} scales=channel"], [f"{BYTES} scales=token"], [NIBBLES, NIBBLES.replace("nq=1 ", "nq=5 ")]),
)  # fmt: skip


def words_of(page: str) -> str:
    """A page without what its numbers are made from, and of links the words alone."""
    text = re.sub(r"<!--.*?-->", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.S)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def asked(problem: str) -> str:
    words = problem.removesuffix(" deterministic")
    return why(words, deterministic=words != problem).rung


class Sentences(unittest.TestCase):
    def test_the_package_takes_what_a_page_says(self):
        for page, words, *problems in SAID:
            found = re.search(re.escape(words).replace("@", RUNG), words_of(page))
            self.assertIsNotNone(found, f"{page} has no such words any more: {words}")
            self.assertEqual(len(found.groups()), len(problems), words)
            for rung, its in zip(found.groups(), problems):
                for problem in its:
                    with self.subTest(page, problem=problem):
                        self.assertIn(rung, (asked(problem), asked(problem).partition("_")[0]))

    def test_the_same_bits_in_any_batch(self):
        for page, words in (("decoding/README.md", "with `num_splits=1` by @,"), ("docs/my-model.md", "says; @ makes that cheaper. `num_splits=1`")):
            rung = re.search(re.escape(words).replace("@", RUNG), words_of(page))[1]
            self.assertIn(rung, (_cache.SAME_IN_ANY_BATCH, _cache.SAME_IN_ANY_BATCH.partition("_")[0]), page)


if __name__ == "__main__":
    unittest.main()
