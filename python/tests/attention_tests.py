"""attention() with NumPy, on the emulator.   python3 -m unittest discover -s python/tests -p attention_tests.py"""

from __future__ import annotations

import inspect
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import reference  # before NumPy

import flash_ladder
import numpy as np
from flash_ladder import _native

WHOLE = os.environ.get("LADDER_WHOLE") == "1"
SECONDS = float(os.environ.get("LADDER_SECONDS", "inf"))  # where something makes each call slow


def inputs(seed=0, b=1, n=128, h=2, d=128, n_k=None, kv=None, dtype="float16"):
    rng = np.random.default_rng(seed)
    shapes = ((b, n, h, d), (b, n_k or n, kv or h, d), (b, n_k or n, kv or h, d))
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


class Attention(unittest.TestCase):
    def check(self, q, k, v, **options):
        out = flash_ladder.attention(q, k, v, **options)
        options.pop("rung", None)
        expected, _ = reference.attention(q, k, v, **options)
        self.assertEqual((out.shape, out.dtype), (q.shape, q.dtype))
        self.assertLessEqual(np.abs(out - expected).max(), reference.tolerance(v))
        return out

    def test_it_is_attention(self):
        self.check(*inputs(b=2, h=3))
        self.check(*inputs(n=256), causal=True)
        self.check(*inputs(), scale=0.3)
        self.check(*inputs(n=1))
        self.check(*inputs(n=37, d=40), causal=True)  # whatever some rung takes

    def test_few_queries_have_a_rung_of_their_own(self):
        for n, kv, d, rung, options in ((1, 1, 128, "d15", {}), (1, 4, 64, "d15", {"causal": True}), (5, 2, 96, "d15", {"causal": True}),
                                        (16, 1, 128, "d15", {"window": (40, 0), "causal": True}), (1, 1, 128, "d16", {"softcap": 5.0}),
                                        (8, 1, 64, "d16", {"sink": np.array([-1, 0, 1, -math.inf], np.float32), "causal": True})):  # fmt: skip
            q, k, v = inputs(n=n, n_k=300, h=4, kv=kv, d=d)
            with self.subTest(n=n, kv=kv, d=d, **options):
                self.check(q, k, v, **options)
                self.assertEqual(flash_ladder.why(q, k, v, **options).rung[:3], rung)
        for more in ({"n": 40, "kv": 1}, {"n": 1, "kv": 1, "d": 256}):  # more rows than a tile has, beside few keys, and columns
            self.assertNotEqual(flash_ladder.why(*inputs(**({"n_k": 300, "h": 4} | more))).rung[0], "d")

    def test_a_rung_by_its_name_is_the_one_that_runs(self):
        q, k, v = inputs(n=256, h=1)
        able = flash_ladder.why(q, k, v)
        bits = {name: self.check(q, k, v, rung=name).tobytes() for name in (*random.sample(able.also, 2), flash_ladder.rungs()[0]["rung"], able.rung)}
        self.assertEqual(bits[able.rung], flash_ladder.attention(q, k, v).tobytes())
        self.assertGreater(len(set(bits.values())), 1)  # the first one's and the last one's roundings differ

    def test_lse_comes_with_the_result(self):
        for n, options in ((128, {}), (128, {"causal": True}), (37, {"scale": 0.5}), (64, {"rung": "p11"})):  # by the rung, or beside it
            q, k, v = inputs(b=2, n=n)
            out, lse = flash_ladder.attention(q, k, v, return_lse=True, **options)
            options.pop("rung", None)
            expected, expected_lse = reference.attention(q, k, v, **options)
            self.assertEqual((lse.shape, lse.dtype), ((2, 2, n), np.float32))
            self.assertLess(np.abs(lse - expected_lse).max(), 1e-5)
            self.assertLessEqual(np.abs(out - expected).max(), reference.tolerance(v))

    def test_strides_make_no_difference(self):
        q, k, v = inputs(b=2, h=2)
        expected = flash_ladder.attention(q, k, v).tobytes()
        padded = np.zeros((2, 128, 2, 136), np.float16)
        padded[..., :128] = k
        apart = np.zeros(q.size + 1, np.float16)[1:].reshape(q.shape)  # 2 bytes off
        apart[...] = q
        by_head = np.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2)
        fields = np.zeros(q.shape, [("x", "f2"), ("y", "u1")])  # a stride that is no multiple of an element
        fields["x"] = q
        backward = np.ascontiguousarray(v[:, :, :, ::-1])[:, :, :, ::-1]
        together = np.stack([q, k, v], 2)
        for changed in ((q, padded[..., :128], v), (apart, k, v), (q, k, by_head), (fields["x"], k, v), (q, k, backward),
                        (together[:, :, 0], together[:, :, 1], together[:, :, 2])):  # fmt: skip
            self.assertEqual(flash_ladder.attention(*changed).tobytes(), expected)
        one_row = np.broadcast_to(k[:, :1], k.shape)  # and a stride of 0
        self.assertEqual(flash_ladder.attention(q, one_row, v).tobytes(), flash_ladder.attention(q, one_row.copy(), v).tobytes())

    def test_inputs_stay_as_they_are(self):
        arrays = inputs()
        for array in arrays:
            array.flags.writeable = False
        before = [array.tobytes() for array in arrays]
        flash_ladder.attention(*arrays)
        self.assertEqual([array.tobytes() for array in arrays], before)

    def test_the_result_goes_where_it_is_wanted(self):
        q, k, v = inputs(b=2)
        expected = flash_ladder.attention(q, k, v)
        memory = np.full((2, 130, 2, 130), 7, np.float16)
        for out in (np.empty_like(q), np.empty_like(q.swapaxes(1, 2)).swapaxes(1, 2), memory[:, 1:-1, :, 1:-1]):
            self.assertIs(flash_ladder.attention(q, k, v, out=out), out)
            self.assertEqual(out.tobytes(), expected.tobytes())
        memory[:, 1:-1, :, 1:-1] = 7
        self.assertTrue((memory == 7).all())

    def test_nothing_to_see_is_zero_and_nothing_to_do_is_nothing(self):
        q, _, _ = inputs(n=3)
        none = np.zeros((1, 0, 2, 128), np.float16)
        out, lse = flash_ladder.attention(q, none, none, return_lse=True)
        self.assertTrue((out == 0).all() and (lse == -np.inf).all())
        self.assertEqual(flash_ladder.attention(none, q, q).shape, none.shape)

    def test_where_no_kernel_runs(self):
        """One function answers there, with every feature."""
        of_heads = np.array([0.5, -2.0], np.float32)
        for b, n, n_k in ((1, 3, 0), (2, 1, 0), (1, 0, 5), (0, 3, 5), (0, 0, 0)):
            for options in ({}, {"causal": True}, {"window": (3, 0)}, {"softcap": 5.0}, {"alibi_slopes": of_heads}, {"sink": of_heads},
                            {"sink": of_heads[::-1].astype(np.float16), "causal": True, "softcap": 3.0, "alibi_slopes": of_heads}):  # fmt: skip
                q, k, v = (np.ones((b, rows, 2, 128), np.float16) for rows in (n, n_k, n_k))
                out, lse = flash_ladder.attention(q, k, v, return_lse=True, **options)
                wanted, wanted_lse = reference.attention(q, k, v, **options)
                with self.subTest(b=b, n=n, n_k=n_k, **options):
                    self.assertEqual((out.shape, lse.shape, lse.dtype), (wanted.shape, wanted_lse.shape, np.float32))
                    self.assertTrue((out == wanted).all() and (lse == wanted_lse).all())
                    given = np.full_like(q, 7)
                    self.assertIs(flash_ladder.attention(q, k, v, out=given, **options), given)
                    self.assertTrue((given == 0).all())
        for options, error in (({"rung": 7}, TypeError), ({"scale": -1.0}, ValueError), ({"sink": np.ones(3)}, ValueError)):
            with self.assertRaises(error):
                flash_ladder.attention(q, k, v, **options)

    def test_arrays_that_say_more_than_numbers_are_refused(self):
        q, k, v = inputs()

        class Metres(np.ndarray):
            pass

        for more in (np.ma.masked_array(q, q > 1), np.ma.masked_array(q), q.view(Metres), q.view(np.recarray)):
            for names in ("q", "k", "v", "out", "qkv"):
                given = {"q": q, "k": k, "v": v} | {name: more for name in (names if len(names) == 3 and names != "out" else [names])}
                with self.subTest(type(more).__name__, names=names), self.assertRaisesRegex(TypeError, "would be lost"):
                    flash_ladder.attention(**given)
        for name in ("sink", "alibi_slopes"):
            with self.assertRaisesRegex(TypeError, f"{name}.*would be lost"):
                flash_ladder.attention(q, k, v, **{name: np.ma.ones(2, np.float32)})
        with tempfile.NamedTemporaryFile() as file:  # which says no more than an array
            mapped = np.memmap(file, np.float16, "w+", shape=q.shape)
            mapped[...] = q
            self.assertEqual(flash_ladder.attention(mapped, k, v).tobytes(), flash_ladder.attention(q, k, v).tobytes())

    def test_out_that_overlaps_itself_is_refused(self):
        q, k, v = inputs(n=64, h=1)
        memory = np.zeros(100_000, np.float16)
        strided = np.lib.stride_tricks.as_strided
        for strides in ((0, 128, 0, 2), (2, 254, 2, 2), (2, 2, 2, 2), (2, 256, 2, 0), (0, -2, 0, 2)):
            with self.subTest(strides), self.assertRaisesRegex(ValueError, "out"):
                flash_ladder.attention(q, k, v, out=strided(memory[500:], q.shape, strides))
        for strides in ((14, 2, 6, 128), (14, -2, 6, 128), (0, 256, 0, 2)):
            out = strided(memory[500:], q.shape, strides)
            self.assertIs(flash_ladder.attention(q, k, v, out=out), out)
            self.assertEqual(out.tobytes(), flash_ladder.attention(q, k, v).tobytes())
        sparse = strided(memory, (1, 64, 1, 128), (0, 6, 0, 400))  # 3 and 200: columns between rows
        flash_ladder.attention(q, k, v, out=sparse)
        self.assertEqual(sparse.tobytes(), flash_ladder.attention(q, k, v).tobytes())

    def test_numbers_of_numpy_are_numbers(self):
        q, k, v = inputs()
        wanted = flash_ladder.attention(q, k, v, scale=float(np.float32(0.3)), causal=True).tobytes()
        for scale in (np.float32(0.3), np.array(0.3, np.float32)):
            self.assertEqual(flash_ladder.attention(q, k, v, scale=scale, causal=np.bool_(True)).tobytes(), wanted)
        for value in (np.ones(1), np.bool_(True), np.array("x"), 1j):
            with self.assertRaisesRegex(TypeError, "scale is"):
                flash_ladder.attention(q, k, v, scale=value)

    def test_two_threads_at_once(self):
        problems = [inputs(seed) for seed in range(4)]
        expected = [flash_ladder.attention(*each).tobytes() for each in problems]
        found = [b""] * 4

        def work(i):
            found[i] = flash_ladder.attention(*problems[i]).tobytes()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(found, expected)

    def test_ctrl_c_ends_the_emulator(self):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
        q, k, v = inputs(n=16384, h=16)  # minutes
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            flash_ladder.attention(q, k, v)
        self.assertLess(time.monotonic() - began, 20)
        self.check(*inputs())

    def test_a_library_that_is_not_there_is_an_import_error(self):
        nowhere = {**os.environ, "FLASH_LADDER_LIBRARY": "/nowhere/libflash_ladder.so"}
        run = subprocess.run([sys.executable, "-c", "import flash_ladder"], env=nowhere, capture_output=True, text=True)
        self.assertRegex(run.stderr, r"ImportError: .*/nowhere(.|\n)*pip install")

    def test_what_holds_has_its_tests(self):
        """Of docs/call.md, which names one in each line of a table."""
        here = Path(__file__).parent
        text = (here.parents[1] / "docs" / "call.md").read_text()
        rows = [line.rpartition(" | ")[2] for line in text.splitlines() if line.startswith("|") and "`" in line.rpartition(" | ")[2]]
        named = {name for row in rows for name in re.findall(r"`(test_\w+|[A-Z]\w+)`", row)}
        tests = "".join(file.read_text() for file in here.glob("*_tests.py"))
        self.assertGreater(len(named), 50)
        for name in named:
            self.assertRegex(tests, rf"(def|class) {name}\(")

    def test_other_packages_are_not_imported_along(self):
        code = "import flash_ladder, sys; sys.exit(any(name in sys.modules for name in ('torch', 'jax', 'cupy')))"
        self.assertEqual(subprocess.run([sys.executable, "-c", code]).returncode, 0)


def documents(n: int, *cuts: int, prefix: int = 0, causal: bool = True):
    """first and end, of documents that begin at 0 and at the cuts."""
    query, ends = np.arange(n), np.array([0, *cuts, n])
    of = np.searchsorted(ends, query, "right")
    first, last = ends[of - 1], ends[of]
    end = np.minimum(np.maximum(first + prefix, query + 1), last) if causal else last
    return first[None].astype(np.int32), end[None].astype(np.int32)


class Intervals(unittest.TestCase):
    def check(self, q, k, v, mask_intervals, **options):
        out, lse = flash_ladder.attention(q, k, v, mask_intervals=mask_intervals, return_lse=True, **options)
        expected, expected_lse = reference.attention(q, k, v, mask_intervals=mask_intervals, **options)
        self.assertLessEqual(np.abs(out - expected).max(), reference.tolerance(v))
        there = np.isfinite(expected_lse)
        self.assertTrue(np.array_equal(lse[~there], expected_lse[~there]))
        self.assertLess(np.abs(lse[there] - expected_lse[there]).max(initial=0), 1e-3 if "softcap" in options else 1e-4)

    def test_documents_and_prefixes(self):
        for first, end in (documents(300, 70, 200), documents(300, 128, prefix=40), documents(300, 5, 6, 250, causal=False), documents(200, prefix=90)):
            with self.subTest(end=end):
                self.check(*inputs(n=first.shape[1], h=2, kv=1), (first, end))

    def test_a_mask_and_a_window_hold_beside_them(self):
        first, end = documents(200, 60, causal=False)
        wanted = flash_ladder.attention(*inputs(n=200), mask_intervals=documents(200, 60))
        self.assertEqual(flash_ladder.attention(*inputs(n=200), mask_intervals=(first, end), causal=True).tobytes(), wanted.tobytes())
        self.check(*inputs(n=200), (first, end), causal=True, window=(30, 0))
        self.check(*inputs(n=200), (first, end), softcap=3.0, sink=np.array([1.0, -2.0], np.float32))
        self.check(*inputs(n=200), (first, end), alibi_slopes=np.array([0.5, 0.25], np.float32))

    def test_any_numbers_in_several_sequences(self):
        rng = np.random.default_rng(3)
        for n, n_k in ((200, 300), (131, 90)):
            first = rng.integers(-20, n_k + 20, (3, n)).astype(np.int32)
            end = (first + rng.integers(-5, 60, (3, n))).astype(np.int32)
            first[1, :30], end[1, 7:20], end[2] = -(2**31), 2**31 - 1, 0
            self.check(*inputs(b=3, n=n, n_k=n_k, h=4, kv=2), (first, end))

    def test_nothing_of_what_nobody_sees_comes_in(self):
        q, k, v = inputs(n=512)
        first, end = np.zeros((1, 512), np.int32), np.full((1, 512), 256, np.int32)
        wanted = flash_ladder.attention(q, k, v, mask_intervals=(first, end))
        k[:, 256:] = v[:, 256:] = np.nan
        self.assertEqual(flash_ladder.attention(q, k, v, mask_intervals=(first, end)).tobytes(), wanted.tobytes())
        k[:, 200:] = np.nan  # and keys in a tile with others
        end[:] = 200
        self.assertTrue(np.isfinite(flash_ladder.attention(q, k, np.where(np.isnan(v), 0, v), mask_intervals=(first, end))).all())

    def test_the_kernel_is_asked_for_by_them_alone(self):
        q, k, v = inputs(n=64)
        self.assertEqual(flash_ladder.why(q, k, v, mask_intervals=documents(64, 9)).rung, "58_intervals")
        self.assertNotEqual(flash_ladder.why(q, k, v, window=(9, 0)).rung, "58_intervals")

    def test_what_does_not_fit_is_refused(self):
        q, k, v = inputs(b=2, n=64)
        both = np.zeros((2, 64), np.int32), np.ones((2, 64), np.int32)
        for wrong, error, words in (
            (both[0], TypeError, "a pair"), ((*both, both[0]), TypeError, "a pair"), ((both[0], None), TypeError, "end"),
            ((both[0], both[1].astype(np.int64)), TypeError, "int32"), ((both[0][:1], both[1][:1]), ValueError, r"\[2, 64\]"),
            ((both[0], both[1][:, :63]), ValueError, r"\[2, 64\]"), ((both[0], np.ones((2, 128), np.int32)[:, ::2]), ValueError, "in one piece"),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                flash_ladder.attention(q, k, v, mask_intervals=wrong)
        for options in ({"rung": "48"}, {"rung": "02"}):
            with self.assertRaisesRegex(NotImplementedError, "has no intervals of keys"):
                flash_ladder.attention(q, k, v, mask_intervals=both, **options)
        with self.assertRaisesRegex(NotImplementedError, "with intervals of keys"):
            flash_ladder.attention(*inputs(b=2, n=64, d=256), mask_intervals=both)


def chosen(rng, batch: int, heads: int, n_q: int, n_k: int, block_keys: int = 128, density: float = 0.5):
    """Blocks of keys for each 128 queries: how many and which, in any order, and the pairs that see each other."""
    tiles, most = -(-n_q // 128), -(-n_k // block_keys)
    met = rng.random((batch, heads, tiles, most)) < density
    blocks = np.argsort(np.where(met, rng.random(met.shape), 2), -1).astype(np.int32)
    seen = np.repeat(np.repeat(met, 128, 2), block_keys, 3)[:, :, :n_q, :n_k]
    return (met.sum(-1).astype(np.int32), blocks), seen


class Blocks(unittest.TestCase):
    def check(self, q, k, v, block_mask, seen, **options):
        out, lse = flash_ladder.attention(q, k, v, block_mask=block_mask, return_lse=True, **options)
        expected, expected_lse = reference.attention(q, k, v, seen=seen, **options)
        self.assertLessEqual(np.abs(out - expected).max(), reference.tolerance(v))
        there = np.isfinite(expected_lse)
        self.assertTrue(np.array_equal(lse[~there], expected_lse[~there]))
        self.assertLess(np.abs(lse[there] - expected_lse[there]).max(initial=0), 1e-3 if "softcap" in options else 1e-4)

    def test_each_sequence_and_head_has_its_own(self):
        rng = np.random.default_rng(5)
        for n, n_k, block_keys in ((300, 500, 128), (300, 500, 64), (128, 1024, 64), (200, 70, 64)):
            for batch, heads in ((2, 4), (1, 4), (2, 1), (1, 1)):
                with self.subTest(n=n, n_k=n_k, block_keys=block_keys, batch=batch, heads=heads):
                    block_mask, seen = chosen(rng, batch, heads, n, n_k, block_keys)
                    self.check(*inputs(b=2, n=n, n_k=n_k, h=4, kv=2), block_mask, seen)

    def test_a_causal_mask_holds_beside_them(self):
        rng = np.random.default_rng(6)
        for n, n_k, block_keys in ((512, 512, 128), (300, 500, 64), (500, 300, 128)):
            block_mask, seen = chosen(rng, 1, 2, n, n_k, block_keys, 0.7)
            self.check(*inputs(n=n, n_k=n_k, h=2), block_mask, seen, causal=True)
        self.check(*inputs(n=512, n_k=512), *chosen(rng, 1, 1, 512, 512), softcap=3.0, sink=np.array([1.0, -2.0], np.float32))

    def test_empty_lists_and_no_others(self):
        q, k, v = inputs(n=256, h=2)
        counts, blocks = np.zeros((1, 1, 2), np.int32), np.zeros((1, 1, 2, 2), np.int32)
        out, lse = flash_ladder.attention(q, k, v, block_mask=(counts, blocks), return_lse=True)
        self.assertTrue((out == 0).all() and np.isneginf(lse).all())
        counts[0, 0, 1] = 1  # one block for the second tile
        v[:, 128:] = np.nan  # which nobody sees
        out = flash_ladder.attention(q, k, v, block_mask=(counts, blocks))
        self.assertTrue((out[:, :128] == 0).all() and np.isfinite(out).all() and (out[:, 128:] != 0).any())

    def test_lists_are_made_once(self):
        q, k, v = inputs(n=300, h=2)
        block_mask, _ = chosen(np.random.default_rng(7), 1, 2, 300, 300, density=2)
        lists = flash_ladder.block_lists(block_mask, q, k, causal=True)
        wanted = flash_ladder.attention(q, k, v, block_mask=block_mask, causal=True)
        self.assertEqual(flash_ladder.attention(q, k, v, block_mask=lists).tobytes(), wanted.tobytes())
        self.assertEqual(lists.stencils.shape[0], 2 + 2 * 2)  # two diagonals, one of which ends with the keys, and none twice
        with self.assertRaisesRegex(ValueError, "of 300 queries and 300 keys, and q has 200"):
            flash_ladder.attention(q[:, :200], k, v, block_mask=lists)

    def test_the_kernel_is_asked_for_by_them_alone(self):
        q, k, v = inputs(n=256)
        block_mask, _ = chosen(np.random.default_rng(8), 1, 1, 256, 256)
        self.assertEqual(flash_ladder.why(q, k, v, block_mask=block_mask).rung, "m04_readers")
        for options in ({}, {"causal": True}, {"softcap": 5.0}, {"sink": np.zeros(2, np.float32)}):
            self.assertNotIn(flash_ladder.why(q, k, v, **options).rung, ("59_tiles", "m04_readers"))

    def test_what_does_not_fit_is_refused(self):
        q, k, v = inputs(b=2, n=256, h=2)
        counts, blocks = np.full((1, 1, 2), 2, np.int32), np.array([[[[0, 1], [1, 0]]]], np.int32)
        for wrong, error, words in (
            (counts, TypeError, "a pair"), ((counts, blocks[0]), ValueError, "must be"), ((counts[..., :1], blocks[..., :1, :]), ValueError, "256 queries"),
            ((counts, blocks + 1), ValueError, r"is \[1, 2\]"), ((counts, blocks * 0), ValueError, "once"),
            ((np.repeat(counts, 3, 1), np.repeat(blocks, 3, 1)), ValueError, "3 heads"),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                flash_ladder.attention(q, k, v, block_mask=wrong)
        intervals = np.zeros((2, 256), np.int32), np.ones((2, 256), np.int32)
        with self.assertRaisesRegex(NotImplementedError, "takes both"):
            flash_ladder.attention(q, k, v, block_mask=(counts, blocks), mask_intervals=intervals)
        for options, words in (({"rung": "58"}, "has no lists of blocks"), ({"window": (9, 0)}, "no window|with lists of blocks")):
            with self.assertRaisesRegex(NotImplementedError, words):
                flash_ladder.attention(q, k, v, block_mask=(counts, blocks), **options)


class Why(unittest.TestCase):
    def test_it_names_the_kernel_and_what_others_lack(self):
        q, k, v = inputs(n=100)
        why = flash_ladder.why(q, k, v, causal=True)
        everyone = {rung["rung"] for rung in flash_ladder.rungs()}
        self.assertEqual({why.rung, *why.also, *why.refused}, everyone)
        self.assertEqual(why, flash_ladder.why("b=1 h=2 n=100 d=128 causal"))
        for name in random.sample(sorted(why.refused), 5):
            with self.assertRaises(NotImplementedError) as refusal:
                flash_ladder.attention(q, k, v, causal=True, rung=name)
            self.assertTrue(str(refusal.exception).startswith(why.refused[name]))

    def test_printed_it_names_the_nearest_and_counts_the_others(self):
        order = [rung["rung"] for rung in flash_ladder.rungs()]
        for problem in ("n=100 d=128 causal", "n=100 d=300"):
            why = flash_ladder.why(problem)
            first, *lines = str(why).splitlines()
            self.assertTrue(first.startswith(f"{problem}: {why.rung or 'no rung'} "), first)
            refused = [line.split()[1].rstrip(":") for line in lines if line.startswith("  not ")]
            self.assertLess(len(lines), 6)
            self.assertEqual(len(refused), 3)
            self.assertIn(f"nor {len(why.refused) - 3} more", lines[-1])
            if why.rung:
                far = [abs(order.index(name) - order.index(why.rung)) for name in refused]
                self.assertEqual(far, sorted(far))
                others = [name for name in set(why.refused) - set(refused) if " solves " not in why.refused[name]]  # of the same formula
                self.assertLessEqual(far[-1], min(abs(order.index(name) - order.index(why.rung)) for name in others))

    def test_it_is_asked_as_attention_is(self):
        q, k, v = inputs()
        taken = flash_ladder.why(q, k, v, causal=True)
        name = random.choice(taken.also)
        self.assertEqual(flash_ladder.why(q, k, v, causal=True, rung=name, out=np.empty_like(q)).rung, name)
        with self.assertRaises(NotImplementedError):
            flash_ladder.why(q, k, v, causal=True, rung=random.choice(sorted(taken.refused)))
        for problem, options in (("n=128", {"causal": True}), ("n=128", {"device": "cuda"}), ("n=128", {"rung": ""}), ("n=128", {"rung": 2})):
            with self.subTest(**options), self.assertRaises(TypeError):
                flash_ladder.why(problem, **options)

    def test_it_says_how_large_scores_may_be_where_there_is_an_end(self):
        names = {rung["rung"] for rung in flash_ladder.rungs()}
        ends = set()
        for problem in ("b=1 h=1 n=128 d=128", "backward b=1 h=1 n=128 d=128"):
            for rung in flash_ladder.why(problem).also:
                why = flash_ladder.why(problem, rung=rung)
                ends.add(why.largest_score)
                if why.largest_score is None:
                    self.assertNotIn("scores up to", str(why))
                    self.assertIsNone(why.says_why)
                else:
                    self.assertIn(f"scores up to 2^{math.log2(why.largest_score):g} (score * log2(e)); {why.says_why} says why", str(why))
                    self.assertIn(why.says_why, names)
                self.assertFalse("backward" in problem and why.largest_score is None)
        self.assertGreater(len(ends), 2)
        self.assertIn(None, ends)

    def test_a_kernel_that_does_more_waits_until_it_is_asked_for(self):
        problem = "b=8 h=8 kv=2 n=2048 d=128 bf16 causal"
        plain = flash_ladder.why(problem)
        self.assertNotEqual(flash_ladder.why(problem.replace("b=8", "b=4")).rung, plain.rung)  # of fewer tiles than 800
        for wish in ("softcap=30", "alibi", "window=100,0"):
            with self.subTest(wish):
                taken = flash_ladder.why(f"{problem} {wish}").rung
                self.assertIn(taken, plain.also)
                self.assertIn(plain.rung, flash_ladder.why(f"{problem} {wish}").refused)
        self.assertEqual(flash_ladder.why(f"{problem} sink").rung, plain.rung)  # a sink costs nothing where none is

    def test_a_refusal_says_what_is_wrong_and_where_to_look(self):
        q, k, v = inputs()
        word = flash_ladder.why(q, k, v).rung.partition("_")[2]
        for rung, way_out in ((f"{word}x", word), ("?", "flash_ladder.rungs()")):
            with self.assertRaisesRegex(ValueError, way_out.replace("(", r"\(").replace(")", r"\)")):
                flash_ladder.attention(q, k, v, rung=rung)
        with self.assertRaisesRegex(NotImplementedError, "fp32") as refusal:
            flash_ladder.attention(*(each.astype("float32") for each in (q, k, v)))
        self.assertNotIn("head dimension", str(refusal.exception))  # there are kernels for it
        # A rung speaks by its kernel for such types and columns, and not by its first one.
        for words, of in (("d=128 intervals=64*0:64", "92_intervals"), ("d=192", "90_oneeach")):
            with self.assertRaisesRegex(NotImplementedError, f"the last one says: {of} adds to the same sums in any order"):
                _native.plan(f"backward h=2 kv=1 n=64 {words}", None, _native.EMULATOR, False, same_bits=True)

    def test_no_rung_takes_it(self):
        why = flash_ladder.why("n=100 d=100 e5m2 alibi")
        self.assertIsNone(why.rung)
        self.assertEqual(len(why.refused), len(flash_ladder.rungs()))


class FlashAttn(unittest.TestCase):
    def test_arguments_are_flash_attns(self):
        self.assertEqual(
            str(inspect.signature(flash_ladder.flash_attn_func)),
            "(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
            "alibi_slopes=None, deterministic=False, return_attn_probs=False)",
        )
        self.assertEqual(
            str(inspect.signature(flash_ladder.flash_attn_varlen_func)),
            "(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False, "
            "window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None, *, seqused_k=None, leftpad_k=None, sink=None)",
        )

    def test_results_are_attentions(self):
        q, k, v = inputs()
        self.assertEqual(flash_ladder.flash_attn_func(q, k, v, 0.0, 0.3, True).tobytes(),
                         flash_ladder.attention(q, k, v, causal=True, scale=0.3).tobytes())  # fmt: skip
        _, lse, probabilities = flash_ladder.flash_attn_func(q, k, v, return_attn_probs=True)
        self.assertEqual(lse.tobytes(), flash_ladder.attention(q, k, v, return_lse=True)[1].tobytes())
        self.assertIsNone(probabilities)

    def test_sequences_of_several_lengths_are_each_by_itself(self):
        q, k, v = (each[0] for each in inputs())
        ends = np.array([0, 50, 50, 128], np.int32)
        out = flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 78, 78, causal=True)
        for begin, end in ((0, 50), (50, 128)):
            alone = flash_ladder.attention(*(each[None, begin:end] for each in (q, k, v)), causal=True)
            self.assertEqual(out[begin:end].tobytes(), alone[0].tobytes())

    def test_a_sink_beside_sequences_of_several_lengths(self):
        sink, ends = np.array([-1, 2], np.float32), np.array([0, 50, 128], np.int32)
        for d in (128, 64):
            q, k, v = (each[0] for each in inputs(d=d))
            for window in ((-1, -1), (20, 0)):
                out, lse, _ = flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 78, 78, causal=True, window_size=window, return_attn_probs=True, sink=sink)
                for begin, end in ((0, 50), (50, 128)):
                    here = [each[None, begin:end] for each in (q, k, v)]
                    wanted, wanted_lse = reference.attention(*here, causal=True, window=window, sink=sink)
                    self.assertLessEqual(np.abs(out[begin:end] - wanted[0]).max(), reference.tolerance(v))
                    self.assertLess(np.abs(lse[:, begin:end] - wanted_lse[0]).max(), 1e-4)
        qkv, kv = np.stack((q, k, v), 1), np.stack((k, v), 1)
        wanted = flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 78, 78, sink=sink).tobytes()
        self.assertEqual(flash_ladder.flash_attn_varlen_qkvpacked_func(qkv, ends, 78, sink=sink).tobytes(), wanted)
        self.assertEqual(flash_ladder.flash_attn_varlen_kvpacked_func(q, kv, ends, ends, 78, 78, sink=sink).tobytes(), wanted)

    def test_of_a_sequence_some_keys_are_used(self):
        """Nothing is copied, and nobody reads the others."""
        ends_q, ends_k = np.array([0, 40, 40, 44, 128], np.int32), np.array([0, 60, 65, 65, 128], np.int32)
        padding, used = np.array([7, 1, 0, 0], np.int32), np.array([51, 1, 0, 63], np.int32)
        whole = ends_k[1:] - ends_k[:-1]
        for d, more in ((128, {}), (64, {}), (128, {"softcap": 5.0}), (128, {"window_size": (20, 0), "sink": np.array([-1, 2], np.float32)})):
            for given in ({"seqused_k": used}, {"leftpad_k": padding}, {"seqused_k": used, "leftpad_k": padding}):
                q, k, v = (each[0] for each in inputs(d=d))
                first, last = ends_k[:-1] + given.get("leftpad_k", 0), ends_k[:-1] + given.get("seqused_k", whole)
                there = np.zeros(128, bool)
                for begin, end in zip(first, last):
                    there[begin:end] = True
                k[~there] = v[~there] = np.nan
                out = flash_ladder.flash_attn_varlen_func(q, k, v, ends_q, ends_k, 84, 63, causal=True, **given, **more)
                options = {"window" if name == "window_size" else name: each for name, each in more.items()}
                for (begin, end), keys in zip(zip(ends_q, ends_q[1:]), zip(first, last)):
                    with self.subTest(d=d, given=list(given), sequence=(begin, end), **more):
                        here = q[None, begin:end], k[None, slice(*keys)], v[None, slice(*keys)]
                        wanted, _ = reference.attention(*here, causal=True, **options)
                        self.assertLessEqual(np.abs(out[begin:end] - wanted[0]).max(initial=0), reference.tolerance(here[2]))

    def test_a_cache_of_more_columns_is_read_as_several_lengths(self):
        """As docs/call.md says."""
        q, K, V = inputs(b=3, n=1, n_k=40, h=4, kv=2, d=256)
        there = np.array([40, 0, 23], np.int32)
        for sequence, length in enumerate(there):
            K[sequence, length:] = V[sequence, length:] = np.nan
        rooms = np.arange(4, dtype=np.int32)
        out = flash_ladder.flash_attn_varlen_func(q[:, 0], K.reshape(-1, 2, 256), V.reshape(-1, 2, 256), rooms, rooms * 40, 1, 40, causal=True, seqused_k=there)
        for sequence, length in enumerate(there):
            wanted, _ = reference.attention(q[None, sequence], K[None, sequence, :length], V[None, sequence, :length])
            self.assertLessEqual(np.abs(out[sequence] - wanted[0, 0]).max(), reference.tolerance(V[sequence, :length]))

    def test_keys_that_are_not_there_cannot_be_used(self):
        q, k, v = (each[0] for each in inputs())
        ends = np.array([0, 50, 128], np.int32)
        for given, error, words in (
            ({"seqused_k": np.array([50, 79], np.int32)}, ValueError, "Sequence 1 has 78 keys; by seqused_k it uses those from 0 on and before 79"),
            ({"leftpad_k": np.array([-1, 0], np.int32)}, ValueError, "Sequence 0 has 50 keys; by leftpad_k it uses those from -1 on and before 50"),
            ({"leftpad_k": np.array([9, 0], np.int32), "seqused_k": np.array([8, 0], np.int32)}, ValueError, "by leftpad_k and seqused_k .* from 9 on and before 8"),
            ({"seqused_k": np.array([50], np.int32)}, ValueError, r"seqused_k has the shape \[1\]; it must be \[batch\], here \[2\]"),
            ({"seqused_k": np.array([50, 78])}, TypeError, "seqused_k is int64; the kernel reads int32"),
            ({"seqused_k": [50, 78]}, TypeError, "seqused_k is a list"),
            ({"block_table": ends}, NotImplementedError, "flash_attn_with_kvcache"),
        ):  # fmt: skip
            with self.subTest(given), self.assertRaisesRegex(error, words):
                flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 78, 78, **given)
        with self.assertRaisesRegex(ValueError, "cu_seqlens_q is of 1 sequences"):
            flash_ladder.flash_attn_varlen_func(q, k, v, ends[1:], ends, 78, 78, seqused_k=np.array([50, 78], np.int32))

    def test_packed_arrays_are_read_where_they_lie(self):
        q, k, v = inputs(b=2, n=100)
        kv, qkv = np.stack((k, v), 2), np.stack((q, k, v), 2)
        wanted = flash_ladder.flash_attn_func(q, k, v, 0.0, 0.3, True, (20, None)).tobytes()
        self.assertEqual(flash_ladder.flash_attn_qkvpacked_func(qkv, 0.0, 0.3, True, (20, None)).tobytes(), wanted)
        self.assertEqual(flash_ladder.flash_attn_kvpacked_func(q, kv, softmax_scale=0.3, causal=True, window_size=(20, -1)).tobytes(), wanted)
        ends = np.array([0, 30, 100], np.int32)
        of_one = [each[0] for each in (q, k, v)]
        wanted = flash_ladder.flash_attn_varlen_func(*of_one, ends, ends, 70, 70, causal=True).tobytes()
        self.assertEqual(flash_ladder.flash_attn_varlen_qkvpacked_func(qkv[0], ends, 70, causal=True).tobytes(), wanted)
        self.assertEqual(flash_ladder.flash_attn_varlen_kvpacked_func(q[0], kv[0], ends, ends, np.int64(70), 70, causal=True).tobytes(), wanted)
        for wrong, error in ((kv, ValueError), (qkv[0], ValueError), (None, TypeError)):
            with self.assertRaises(error):
                flash_ladder.flash_attn_qkvpacked_func(wrong)

    def test_what_no_rung_does_is_said(self):
        q, k, v = inputs()
        with self.assertRaises(NotImplementedError):
            flash_ladder.flash_attn_func(q, k, v, dropout_p=0.1)
        lengths = np.array([0, 128], np.int32)
        short = [np.ascontiguousarray(each[0, ..., :36]) for each in (q, k, v)]  # columns that are no whole 16 bytes
        with self.assertRaises(NotImplementedError):
            flash_ladder.flash_attn_varlen_func(*short, lengths, lengths, 128, 128)

    def test_values_of_other_columns_are_refused_and_padded_they_are_taken(self):
        q, k, v = inputs(d=192, n=40)
        v = v[..., :128]
        with self.assertRaisesRegex(NotImplementedError, "v has 128 columns, and k 192; no rung takes that.\n  Padded with zeros: as many as k"):
            flash_ladder.flash_attn_func(q, k, v, causal=True)
        out = flash_ladder.flash_attn_func(q, k, np.pad(v, [(0, 0)] * 3 + [(0, 64)]), causal=True)
        self.assertLessEqual(np.abs(out[..., :128] - reference.attention(q, k, v, causal=True)[0]).max(), reference.tolerance(v))
        self.assertTrue((out[..., 128:] == 0).all())


class Calls(unittest.TestCase):
    """Any call ends in the right answer, or in one of three exceptions."""

    def test_calls_at_random(self):
        rng = random.Random(None)
        seed = rng.randrange(2**32)
        taken, began = 0, time.monotonic()
        for number in range(10_000 if WHOLE else 300):
            if time.monotonic() - began > SECONDS:
                break
            rng.seed(seed + number)
            with self.subTest(seed=seed + number):
                taken += self.call(rng)
        else:
            number += 1
        if WHOLE:
            print(f"{number} calls, in {taken} of which a kernel ran", file=sys.stderr)
        self.assertGreater(taken, number / 10)

    def attend(self, q, k, v, **options):
        return flash_ladder.attention(q, k, v, **options)

    def call(self, rng: random.Random) -> bool:
        """Whether a kernel ran."""
        n = rng.choice([128, 128, 64, rng.randrange(1, 40)])
        d = rng.choice([128] * 6 + [rng.randrange(1, 130)])
        h = rng.choice([1, 1, 2])
        arrays = dict(zip("qkv", inputs(rng.randrange(2**32), rng.choice([1, 1, 2]), n, h, d)))
        options = {}
        for name, values in (("causal", [True]), ("scale", [0.05, 1.0]), ("return_lse", [True])):
            if rng.random() < 0.3:
                options[name] = rng.choice(values)
        for name, values in (("window", [(-1, -1), (17, 0), (0, 4)]), ("softcap", [0.0, 5.0]), ("rung", ["00", "02_swizzle"]),
                             ("sink", [np.ones(h, np.float32)]), ("alibi_slopes", [np.ones(h, np.float32)])):  # fmt: skip
            if rng.random() < 0.05:
                options[name] = rng.choice(values)
        for name in "qkv":
            if rng.random() < 0.1:
                arrays[name] = arrays[name].swapaxes(1, 2).copy().swapaxes(1, 2)
        wrong = rng.random() < 0.5
        if wrong:
            self.spoil(rng, arrays, options)
        try:
            found = self.attend(*arrays.values(), **options)
        except (ValueError, TypeError, NotImplementedError) as error:
            self.assertGreater(len(str(error)), 10)
            return False
        self.assertFalse(wrong, f"{options}, {[(a.shape, a.dtype) for a in arrays.values()]}")
        for name in ("rung", "out"):
            options.pop(name, None)
        lse = found[1] if options.pop("return_lse", False) else None
        out = found if lse is None else found[0]
        expected, expected_lse = reference.attention(*arrays.values(), **options)
        self.assertLessEqual(np.abs(out - expected).max(), reference.tolerance(arrays["v"]))
        if lse is not None:
            self.assertLess(np.abs(lse - expected_lse).max(), options.get("softcap", 0) * 2**-10 or 1e-4)  # tanh.approx has 11 bits
        return True

    def spoil(self, rng: random.Random, arrays: dict, options: dict) -> None:
        name = rng.choice("qkv")
        array = arrays[name]
        junk = [None, 7, -3, float("nan"), "x", [], object(), np.float64(2), 2**40, (1, 2, 3), {"a": 1}, array[..., 0]]
        kind = rng.randrange(5)
        if kind == 0:  # an array of another form
            arrays[name] = rng.choice([
                array[0], array[None], array[..., :-1] if array.shape[3] > 1 else array[:, :, :, None], array.astype(np.float32),
                array.astype(np.int32), array.astype(complex), array.astype(object), array.tolist(), None, "q", 3.0,
                np.concatenate([array] * 2, 0), np.zeros((*array.shape[:2], 0, array.shape[3]), np.float16),
                np.zeros((*array.shape[:2], 7, array.shape[3]), np.float16),
            ])  # fmt: skip
            if name != "q" and isinstance(arrays[name], np.ndarray) and arrays[name].dtype == arrays["q"].dtype:
                arrays["q"] = arrays["q"][..., :0]  # some of these would fit together
            if name == "q" and arrays["k"].shape[2] == 1:
                arrays["k"] = arrays["k"][..., :0]  # any heads share one of keys
        elif kind == 1:  # an option of the wrong kind
            of = {"causal": junk, "scale": [each for each in junk if each is not None and not (isinstance(each, (int, float)) and each > 0)],
                  "window": [7, (1,), (1, 2, 3), (0.5, 1), "ab", (-2, 0), (2**31, 0), (True, 1)],
                  "deterministic": [None, 1, "x", 0.0], "softcap": [None, -1.0, float("inf"), float("nan"), "x", True], "rung": [7, "no_such", b"02", "02_swizle"],
                  "alibi_slopes": [1.0, array, "x", np.ones(1000, np.float32)], "sink": [1.0, array, np.ones((1, 1))],
                  "out": [array[0], array.astype(np.float32), 7, arrays["q"], arrays["k"], np.broadcast_to(np.float16(0), arrays["q"].shape)]}  # fmt: skip
            option = rng.choice(sorted(of))
            options[option] = rng.choice(of[option])
        elif kind == 2:  # a feature that needs more heads than there are
            arrays["q"] = np.zeros((array.shape[0], array.shape[1], arrays["k"].shape[2] * 2 + 1, array.shape[3]), np.float16)
            if arrays["k"].shape[2] == 1:
                arrays["k"] = arrays["k"][..., :0]
        elif kind == 3:  # types that no rung mixes
            arrays[name] = array.astype(np.float32)
        else:
            options["no_such_option"] = 1


if __name__ == "__main__":
    unittest.main()
