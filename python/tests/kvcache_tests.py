"""flash_attn_with_kvcache(): with NumPy on the emulator, with PyTorch there and, if it sees one, on a GPU.
    python3 -m unittest discover -s python/tests -p kvcache_tests.py"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import unittest
from unittest import mock

import reference  # before NumPy

import flash_ladder
import numpy as np
from flash_ladder import flash_attn_with_kvcache

torch = None
if importlib.util.find_spec("torch") is not None:
    import torch

FEW_KEYS = (0, 1, 77, 300)  # before the call, of each sequence
D, KV, HEADS, NEW, ROOM = 64, 2, 6, 3, 320


class Cached(unittest.TestCase):
    """A cache of sequences that use different parts of it, with NaN wherever nobody looks."""

    def put(self, array):
        return array

    def get(self, array):
        return np.asarray(array)

    def setUp(self):
        rng = np.random.default_rng(7)
        batch = len(FEW_KEYS)
        draw = lambda n, heads: rng.standard_normal((batch, n, heads, D)).astype(np.float16)
        self.q, self.k, self.v = draw(NEW, HEADS), draw(NEW, KV), draw(NEW, KV)
        self.K, self.V = draw(ROOM, KV), draw(ROOM, KV)
        for cache in (self.K, self.V):
            for sequence, length in enumerate(FEW_KEYS):
                cache[sequence, length:] = np.nan
        self.lengths = np.array(FEW_KEYS, np.int32)

    def in_pages(self, size: int):
        """K, V and the table: pages from behind, with one between any two that is nobody's; the table ends in what nobody may read."""
        batch, most = len(FEW_KEYS), -(-ROOM // size)
        pages = np.full((2, 2 * batch * most, size, KV, D), np.nan, np.float16)
        table = np.full((batch, most), -1, np.int32)
        table[:, 1::2] = 2**31 - 1
        free = 2 * batch * most - 1
        for sequence, length in enumerate(FEW_KEYS):
            for j in range(-(-(length + NEW) // size)):
                table[sequence, j] = free
                rows = slice(j * size, min((j + 1) * size, ROOM))
                for cache, full in zip(pages, (self.K, self.V)):
                    cache[free, : rows.stop - rows.start] = full[sequence, rows]
                free -= 2
        return pages[0], pages[1], table

    def expected(self, causal=True, **options):
        outs, lses = [], []
        for sequence, length in enumerate(FEW_KEYS):
            k, v = (np.concatenate([cache[sequence : sequence + 1, :length], new[sequence : sequence + 1]], 1)
                    for cache, new in ((self.K, self.k), (self.V, self.v)))  # fmt: skip
            out, lse = reference.attention(self.q[sequence : sequence + 1], k, v, causal=causal, **options)
            outs.append(out)
            lses.append(lse)
        return np.concatenate(outs), np.concatenate(lses)

    def call(self, K, V, **options):
        """The result and LSE; K and V are changed."""
        placed = {name: self.put(each) if isinstance(each, np.ndarray) else each for name, each in options.items()}
        K_there, V_there = self.put(K), self.put(V)
        out, lse = flash_attn_with_kvcache(
            self.put(self.q), K_there, V_there, self.put(self.k), self.put(self.v), cache_seqlens=self.put(self.lengths),
            return_softmax_lse=True, **({"causal": True} | placed),
        )  # fmt: skip
        K[...], V[...] = self.get(K_there), self.get(V_there)
        return self.get(out), self.get(lse)

    def close(self, got, wanted):
        for one, other, tolerance in zip(got, wanted, (reference.tolerance(self.V[np.isfinite(self.V)]), 1e-3)):
            self.assertEqual(one.shape, other.shape)
            self.assertLessEqual(np.abs(one - other).max(), tolerance)


class Caches(Cached):
    def test_new_tokens_are_appended_and_seen(self):
        before = self.K.copy()
        self.close(self.call(self.K, self.V), self.expected())
        for sequence, length in enumerate(FEW_KEYS):
            self.assertEqual(self.K[sequence, length : length + NEW].tobytes(), self.k[sequence].tobytes())
            self.assertEqual(self.V[sequence, length : length + NEW].tobytes(), self.v[sequence].tobytes())
            rest = np.r_[0:length, length + NEW : ROOM]
            self.assertEqual(self.K[sequence, rest].tobytes(), before[sequence, rest].tobytes())

    def test_pages_give_the_bits_of_one_piece(self):
        wanted = [each.tobytes() for each in self.call(self.K.copy(), self.V.copy())]
        for size in (1, 5, 16, 64, 256):
            with self.subTest(size=size):
                K, V, table = self.in_pages(size)
                got = self.call(K, V, block_table=table)
                self.assertEqual([each.tobytes() for each in got], wanted)

    def test_a_sequence_alone_has_the_answer_that_it_has_in_a_batch(self):
        whole, _ = self.call(self.K.copy(), self.V.copy())
        for i in range(len(FEW_KEYS)):
            K, V = self.K[i : i + 1].copy(), self.V[i : i + 1].copy()
            one = [self.put(each[i : i + 1].copy()) for each in (self.q, self.k, self.v, self.lengths)]
            out = flash_attn_with_kvcache(one[0], self.put(K), self.put(V), one[1], one[2], cache_seqlens=one[3], causal=True)
            self.assertLessEqual(np.abs(self.get(out) - whole[i : i + 1]).max(), 2e-3)

    def test_one_split_gives_the_bits_of_the_sequence_alone(self):
        whole, lse = self.call(self.K.copy(), self.V.copy(), num_splits=1)
        self.close((whole, lse), self.expected())
        for i in range(len(FEW_KEYS)):
            K, V = self.K[i : i + 1].copy(), self.V[i : i + 1].copy()
            one = [self.put(each[i : i + 1].copy()) for each in (self.q, self.k, self.v, self.lengths)]
            out = flash_attn_with_kvcache(one[0], self.put(K), self.put(V), one[1], one[2], cache_seqlens=one[3], causal=True, num_splits=1)
            np.testing.assert_array_equal(self.get(out), whole[i : i + 1])

    def test_one_split_gives_the_bits_among_64_sequences_too(self):
        def call(sequences):
            q, k, v, K, V, lengths = (self.put(each[sequences]) for each in (self.q, self.k, self.v, self.K, self.V, self.lengths))
            return self.get(flash_attn_with_kvcache(q, K, V, k, v, cache_seqlens=lengths, causal=True, num_splits=1))

        among = call(list(range(len(FEW_KEYS))) * (64 // len(FEW_KEYS)))
        for i in range(len(FEW_KEYS)):
            alone = call([i])[0]
            for one in among[i :: len(FEW_KEYS)]:
                np.testing.assert_array_equal(one, alone)

    def test_options_are_attentions(self):
        slopes = np.linspace(0.01, 0.5, HEADS, dtype=np.float32)
        for options in ({"causal": False}, {"softmax_scale": 0.3}, {"window_size": (40, 0)}, {"softcap": 2.0}, {"alibi_slopes": slopes, "softcap": 5.0}):
            named = {"scale" if name == "softmax_scale" else "window" if name == "window_size" else name: each for name, each in options.items()}
            with self.subTest(**options):
                self.close(self.call(self.K.copy(), self.V.copy(), **options), self.expected(**named))

    def test_rows_of_the_cache_are_chosen(self):
        order = np.array([2, 0, 3, 1], np.int32)
        K, V = np.empty_like(self.K), np.empty_like(self.V)
        K[order], V[order] = self.K, self.V
        self.close(self.call(K, V, cache_batch_idx=order), self.expected())

    def test_keys_and_values_in_one_allocation_and_a_shared_page(self):
        pages = np.full((4, 2, 16, KV, D), np.nan, np.float16)  # K and V of a page behind each other
        rng = np.random.default_rng(3)
        pages[:3] = rng.standard_normal(pages[:3].shape)
        there = self.put(pages)
        q = self.put(self.q[:2, :1].copy())
        table = np.array([[2, 0], [2, 1]], np.int32)  # the first page belongs to both
        out = flash_attn_with_kvcache(q, there[:, 0], there[:, 1], cache_seqlens=self.put(np.array([30, 20], np.int32)), block_table=self.put(table))
        for sequence, length in enumerate((30, 20)):
            k, v = (np.concatenate(pages[table[sequence], i])[None, :length] for i in (0, 1))
            wanted, _ = reference.attention(self.q[sequence : sequence + 1, :1], k, v)
            self.assertLessEqual(np.abs(self.get(out)[sequence] - wanted).max(), reference.tolerance(v))

    def test_one_number_is_every_sequences(self):
        keys = [np.nan_to_num(each[:, :300]) for each in (self.K, self.V)]
        args = [self.put(each) for each in (self.q, *keys)]
        whole, by_number = flash_attn_with_kvcache(*args), flash_attn_with_kvcache(*args, cache_seqlens=300)
        self.assertEqual(self.get(whole).tobytes(), self.get(by_number).tobytes())
        self.close([self.get(flash_attn_with_kvcache(*args, cache_seqlens=17))],
                   [reference.attention(self.q, *(each[:, :17] for each in keys))[0]])  # fmt: skip


class Bytes(Cached):
    """Caches of a byte for each number, and the answer to the numbers that these stand for."""

    types = ("int8",)
    rungs = {"head": "d13_bytes", "token": "d25_tokens", "channel": "d24_channels"}

    def dtype(self, name: str):
        return name

    def quantised(self, K, V, name: str, per: str = "head", **scales):
        """As arrays that the test can look at: bytes, scales and what they stand for."""
        used = [np.nan_to_num(each) for each in (K, V)]
        bytes_ = flash_ladder.quantize_kv(*map(self.put, used), self.dtype(name), per=per, **scales)
        beside = {"head": np.s_[:, None, :, None], "token": np.s_[..., None], "channel": np.s_[:, None]}[per]
        return bytes_, [self.numbers(each) * self.get(scale)[beside] for each, scale in zip(bytes_[:2], bytes_[2:])]

    def numbers(self, bytes_):
        return self.get(bytes_).astype(np.float32)

    def test_answers_are_those_of_the_numbers(self):
        for name, per in itertools.product(self.types, self.rungs):
            (K, V, k_scale, v_scale), numbers = self.quantised(self.K, self.V, name, per)
            outs, lses = [], []
            for i, length in enumerate(FEW_KEYS):
                k, v = (each[i : i + 1, :length] for each in numbers)
                out, lse = reference.attention(self.q[i : i + 1], k, v, causal=True)
                outs.append(out)
                lses.append(lse)
            first = (lambda scale: scale[:, :40]) if per == "token" else lambda scale: scale
            few = dict(causal=True, k_descale=first(k_scale), v_descale=first(v_scale))
            by_attention = flash_ladder.attention(self.put(self.q), K[:, :40], V[:, :40], **few)
            of_a_cache = flash_attn_with_kvcache(self.put(self.q), K[:, :40], V[:, :40], **few)
            self.assertEqual(self.get(by_attention).tobytes(), self.get(of_a_cache).tobytes())
            self.assertEqual(flash_ladder.why(self.put(self.q), K, V, k_descale=k_scale, v_descale=v_scale).rung, self.rungs[per])
            for heads in (2, 6):  # of queries: rows for the narrow tile, and for the wide one
                q = np.ascontiguousarray(self.q[:, :, :heads])
                got = flash_attn_with_kvcache(self.put(q), K, V, cache_seqlens=self.put(self.lengths), causal=True, return_softmax_lse=True,
                                              k_descale=k_scale, v_descale=v_scale)  # fmt: skip
                self.assertEqual(tuple(got[0].shape), q.shape)
                if heads == HEADS:
                    finite = lambda each: np.where(np.isinf(each), 0, each)  # queries without a key
                    self.close([finite(self.get(each)) for each in got], [finite(np.concatenate(each)) for each in (outs, lses)])

    def test_pages_and_new_tokens(self):
        for name, per in itertools.product(self.types, self.rungs):
            (K, V, *scales), _ = self.quantised(self.K, self.V, name, per)
            named = lambda names, values: dict(zip(names, values))
            given = {} if per == "token" else named(("k_descale", "v_descale"), scales)
            (k, v, *new_scales), _ = self.quantised(self.k, self.v, name, per, **given)
            options = dict(cache_seqlens=self.put(self.lengths), causal=True)
            if per == "token":
                options |= named(("k_new_descale", "v_new_descale"), new_scales)
            size, batch = 64, len(FEW_KEYS)
            most = ROOM // size
            table = np.arange(batch * most, dtype=np.int32).reshape(batch, most)[:, ::-1].copy()
            pages = []
            for each in (K, V):
                page = self.put(np.zeros((batch * most, size, KV, D), np.int8))
                page = page if name == "int8" else page.view(each.dtype)
                page[self.put(table.reshape(-1).astype(np.int64))] = each.reshape(batch * most, size, KV, D)
                pages.append(page)
            in_pages = scales
            if per == "token":
                in_pages = [np.zeros((batch * most, size, KV), np.float32) for _ in scales]
                for page, each in zip(in_pages, scales):
                    page[table.reshape(-1)] = self.get(each).reshape(batch * most, size, KV)
                in_pages = list(map(self.put, in_pages))
            in_one = flash_attn_with_kvcache(self.put(self.q), K, V, k, v, **options, **named(("k_descale", "v_descale"), scales))
            paged = flash_attn_with_kvcache(self.put(self.q), *pages, k, v, block_table=self.put(table), **options, **named(("k_descale", "v_descale"), in_pages))
            self.assertEqual(self.get(in_one).tobytes(), self.get(paged).tobytes())
            for i, length in enumerate(FEW_KEYS):
                self.assertEqual(self.numbers(K)[i, length : length + NEW].tobytes(), self.numbers(k)[i].tobytes())
                if per == "token":
                    for scale, new in zip(scales, new_scales):
                        self.assertEqual(self.get(scale)[i, length : length + NEW].tobytes(), self.get(new)[i].tobytes())

    def test_how_is_rounded(self):
        numbers = np.zeros((1, 8, 1, 16), np.float32)
        numbers[0, :, 0, 0] = [127, -127, 2.5, 3.5, -0.5, 0.4, 1e9, np.nan]
        numbers = self.put(numbers)
        one = self.put(np.ones((1, 1), np.float32))
        k, v, k_scale, v_scale = flash_ladder.quantize_kv(numbers, numbers[:, :6], "int8", k_descale=one)
        self.assertEqual(self.numbers(k)[0, :, 0, 0].tolist(), [127, -127, 2, 4, 0, 0, 127, 0])
        self.assertEqual(self.get(v_scale).tolist(), [[1]])
        zeros = flash_ladder.quantize_kv(numbers[:, :, :, 1:], numbers[:, :0], "int8")
        self.assertEqual([self.get(each).tolist() for each in zeros[2:]], [[[0]], [[0]]])
        self.assertFalse(self.numbers(zeros[0]).any())

    def test_of_what_the_scales_are(self):
        for name, largest in zip(("int8", "float8_e4m3fn"), (127, 448)):
            if name not in self.types:
                continue
            for per, axes in (("head", (1, 3)), ("token", 3), ("channel", 1)):
                made, stands_for = self.quantised(self.k, self.v, name, per)
                for array, scale, numbers in zip((self.k, self.v), made[2:], stands_for):
                    magnitude = np.abs(array.astype(np.float32)).max(axes)
                    self.close([self.get(scale)], [magnitude / largest])
                    self.assertTrue((np.abs(self.numbers(made[0])).max(axes) == largest).all())
                    steps = np.expand_dims(magnitude, axes) / (2 * 127 if name == "int8" else 2 * 14)
                    self.assertTrue((np.abs(numbers - array) <= 1.01 * steps).all())

    def test_what_cannot_be_is_said(self):
        (K, V, k_scale, v_scale), _ = self.quantised(self.K, self.V, "int8")
        per_token, per_channel = (self.quantised(self.K, self.V, "int8", per)[0][2:] for per in ("token", "channel"))
        call = lambda **given: flash_attn_with_kvcache(**{**dict(q=self.put(self.q), k_cache=K, v_cache=V, cache_seqlens=self.put(self.lengths), k_descale=k_scale, v_descale=v_scale), **given})
        for error, words, given in (
            (ValueError, r"k_descale has the shape \[4, 1\]; it must be \[batch, kv_heads\], here \[4, 2\]", {"k_descale": k_scale[:, :1]}),
            (TypeError, "v_descale is .*float16; the kernel reads float32", {"v_descale": self.put(self.get(v_scale).astype(np.float16))}),
            (TypeError, "k is .*float16; with scales it is one of float8_e4m3fn, int8, uint8", {"k_cache": self.put(self.K), "v_cache": self.put(self.V)}),
            (TypeError, "k is .*int8, and v .*float16", {"v_cache": self.put(self.V)}),
            (TypeError, "(?s)k is .*float16, and k_cache .*int8.*quantize_kv", {"k": self.put(self.k), "v": self.put(self.v)}),
            (NotImplementedError, "d11_thrift takes .*, not in fp16, s8 and fp16", {"num_splits": 1}),
            (NotImplementedError, "softcap", {"softcap": 3.0}),
            (ValueError, r"k_descale has the shape \[4, 320, 1\]; it must be as the cache is, without d, here \[4, 320, 2\] or \[batch, kv_heads, d\], here \[4, 2, 64\]", {"k_descale": per_token[0][..., :1]}),
            (ValueError, r"v_descale has the shape \[4, 2\]; it must be as the cache is, without d", {"k_descale": per_token[0]}),
            (ValueError, r"v_descale has the shape \[4, 320, 2\]; it must be \[batch, kv_heads, d\], here \[4, 2, 64\]", {"k_descale": per_channel[0], "v_descale": per_token[1]}),
            (ValueError, "per token or per channel are of both", {"k_descale": per_channel[0], "v_descale": None}),
            (ValueError, "have other strides", {"k_descale": per_token[0], "v_descale": self.put(np.asfortranarray(self.get(per_token[1])))}),
            (ValueError, "begin at multiples of 16 bytes", {f"{name}_descale": self.put(np.ones((4, 2, 65), np.float32))[..., :64] for name in "kv"}),
            (ValueError, "come with new keys and values for a cache with scales per token", {"k": K[:, :3], "v": V[:, :3], "k_descale": per_token[0], "v_descale": per_token[1]}),
            (ValueError, "come with new keys and values for a cache with scales per token", {"k": K[:, :3], "v": V[:, :3], "k_new_descale": k_scale, "v_new_descale": v_scale}),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                call(**given)
        few = [each[:, :2, :, :2] for each in (K, V)]
        with self.assertRaisesRegex(ValueError, "which scales per token have here, and those per channel"):
            flash_attn_with_kvcache(self.put(self.q[..., :2].copy()), *few, k_descale=per_channel[0][..., :2], v_descale=per_channel[1][..., :2])
        for error, words, given in ((ValueError, "both or neither", {"v_descale": None}), (NotImplementedError, "no rung has both", {"mask_intervals": (self.lengths, self.lengths)}),
                                    (NotImplementedError, "No rung takes", {"sink": self.put(np.zeros(HEADS, np.float32))})):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                flash_ladder.attention(self.put(self.q), K, V, **{**dict(k_descale=k_scale, v_descale=v_scale), **given})
        quantise = lambda *given, **named: flash_ladder.quantize_kv(self.put(self.k), *given, **named)
        with self.assertRaisesRegex(TypeError, "one of float8_e4m3fn, int8, int4"):
            quantise(self.put(self.v), "int2")
        with self.assertRaisesRegex(ValueError, r"v has the shape .*\[batch, n, kv_heads, d\]"):
            quantise(self.put(self.v[0]), "int8")
        with self.assertRaisesRegex(ValueError, "k_descale has the shape"):
            quantise(self.put(self.v), "int8", k_descale=k_scale[:2])
        with self.assertRaisesRegex(ValueError, r"k_descale has the shape \[4, 2\]; it must be \[batch, kv_heads, d\], here \[4, 2, 64\]"):
            quantise(self.put(self.v), "int8", per="channel", k_descale=k_scale)
        with self.assertRaisesRegex(ValueError, "per is 'row'; it is one of head, token, channel"):
            quantise(self.put(self.v), "int8", per="row")
        for per in ("head", "channel"):
            with self.assertRaisesRegex(NotImplementedError, f"int4 with a scale per {per}: no rung reads that"):
                quantise(self.put(self.v), "int4", per=per)


class Nibbles(Cached):
    """Caches of four bits for each number, with a scale of each key of each head."""

    def dtype(self):
        return "int4"

    def quantised(self, *of, **scales):
        """As flash_attn_with_kvcache takes them, and the numbers that these stand for."""
        made = flash_ladder.quantize_kv(*(self.put(np.nan_to_num(each)) for each in of), self.dtype(), **scales)
        return made, [self.numbers(each) * self.get(scale)[..., None] for each, scale in zip(made[:2], made[2:])]

    def numbers(self, bytes_):
        halves = self.get(bytes_)[..., None] >> np.array([0, 4], np.uint8) & 15
        return ((halves.astype(np.int64) ^ 8) - 8).reshape(*bytes_.shape[:-1], -1).astype(np.float32)

    def test_answers_are_those_of_the_numbers(self):
        (K, V, k_scale, v_scale), numbers = self.quantised(self.K, self.V)
        self.assertEqual((tuple(K.shape), tuple(k_scale.shape)), ((len(FEW_KEYS), ROOM, KV, D // 2), (len(FEW_KEYS), ROOM, KV)))
        scales = dict(k_descale=k_scale, v_descale=v_scale)
        self.assertEqual(flash_ladder.why(self.put(self.q), K, V, **scales).rung, "d22_smallest")
        answers = [reference.attention(self.q[i : i + 1], *(each[i : i + 1, :length] for each in numbers), causal=True) for i, length in enumerate(FEW_KEYS)]
        finite = lambda each: np.where(np.isinf(each), 0, each)  # queries without a key
        got = flash_attn_with_kvcache(self.put(self.q), K, V, cache_seqlens=self.put(self.lengths), causal=True, return_softmax_lse=True, **scales)
        self.close([finite(self.get(each)) for each in got], [finite(np.concatenate(each)) for each in zip(*answers)])
        one_query = flash_attn_with_kvcache(self.put(self.q[:, -1:]), K, V, cache_seqlens=self.put(self.lengths), **scales)  # a narrow tile
        self.close([self.get(one_query)], [np.concatenate([out[:, -1:] for out, _ in answers])])
        part = [each[:, :40] for each in (K, V, k_scale, v_scale)]
        self.assertEqual(self.get(flash_ladder.attention(self.put(self.q), *part[:2], causal=True, k_descale=part[2], v_descale=part[3])).tobytes(),
                         self.get(flash_attn_with_kvcache(self.put(self.q), *part[:2], causal=True, k_descale=part[2], v_descale=part[3])).tobytes())  # fmt: skip

    def test_pages_and_new_tokens(self):
        (K, V, *scales), _ = self.quantised(self.K, self.V)
        (k, v, *new_scales), _ = self.quantised(self.k, self.v)
        options = dict(cache_seqlens=self.put(self.lengths), causal=True, k_new_descale=new_scales[0], v_new_descale=new_scales[1])
        size, batch = 64, len(FEW_KEYS)
        most = ROOM // size
        table = np.arange(batch * most, dtype=np.int32).reshape(batch, most)[:, ::-1].copy()
        pages = []
        for each in (K, V, *scales):
            made = np.zeros((batch * most, size, *each.shape[2:]), self.get(each).dtype)
            made[table.reshape(-1)] = self.get(each).reshape(batch * most, size, *each.shape[2:])
            pages.append(self.put(made))
        in_one = flash_attn_with_kvcache(self.put(self.q), K, V, k, v, k_descale=scales[0], v_descale=scales[1], **options)
        in_pages = flash_attn_with_kvcache(self.put(self.q), *pages[:2], k, v, block_table=self.put(table), k_descale=pages[2], v_descale=pages[3], **options)
        self.assertEqual(self.get(in_one).tobytes(), self.get(in_pages).tobytes())
        for cache, new in zip((K, V, *scales), (k, v, *new_scales)):
            for i, length in enumerate(FEW_KEYS):
                self.assertEqual(self.get(cache)[i, length : length + NEW].tobytes(), self.get(new)[i].tobytes())
        longer = flash_attn_with_kvcache(self.put(self.q), K, V, cache_seqlens=self.put(self.lengths + np.int32(NEW)), causal=True, k_descale=scales[0], v_descale=scales[1])
        self.assertEqual(self.get(in_one).tobytes(), self.get(longer).tobytes())

    def test_how_is_rounded(self):
        numbers = np.zeros((1, 9, 1, 4), np.float32)
        numbers[0, :, 0, 1] = [7, -7, 2.5, 3.5, -0.5, 0.4, 1e9, -1e9, np.nan]
        one = self.put(np.ones((1, 9, 1), np.float32))
        k, v, _, v_scale = flash_ladder.quantize_kv(self.put(numbers), self.put(numbers[:, :6] * 3), self.dtype(), k_descale=one)
        self.assertEqual(self.numbers(k)[0, :, 0, 1].tolist(), [7, -7, 2, 4, 0, 0, 7, -8, 0])
        self.assertEqual(self.get(k)[0, :2, 0].tolist(), [[0x70, 0], [0x90, 0]])
        self.close([self.get(v_scale)[0, :, 0]], [np.array([3, 3, 7.5 / 7, 1.5, 1.5 / 7, 1.2 / 7], np.float32)])
        self.assertEqual(np.abs(self.numbers(v)).max(-1)[0, :, 0].tolist(), [7] * 6)
        zeros = flash_ladder.quantize_kv(self.put(0 * numbers[:, :2]), self.put(numbers[:, :0]), self.dtype())
        self.assertFalse(self.get(zeros[0]).any() or self.get(zeros[2]).any())
        self.assertEqual(tuple(zeros[3].shape), (1, 0, 1))

    def test_what_cannot_be_is_said(self):
        (K, V, k_scale, v_scale), _ = self.quantised(self.K, self.V)
        (k, v, k_new, v_new), _ = self.quantised(self.k, self.v)
        given = dict(q=self.put(self.q), k_cache=K, v_cache=V, cache_seqlens=self.put(self.lengths), k_descale=k_scale, v_descale=v_scale)
        of_33 = self.put(np.zeros((len(FEW_KEYS), NEW, HEADS, 33), np.float16))
        for error, words, changed in (
            (ValueError, "q has 33 columns; of four bits two share a byte", {"q": of_33}),
            (ValueError, "k has half as many columns", {"k_cache": K[..., :16], "v_cache": V[..., :16]}),
            (ValueError, r"k_descale has the shape \[4, 2\]; it must be as the cache is, without d, here \[4, 320, 2\]", {"k_descale": k_scale[:, 0]}),
            (TypeError, "v_descale is .*float16; the kernel reads float32", {"v_descale": self.put(self.get(v_scale).astype(np.float16))}),
            (ValueError, "four bits comes with k_descale and v_descale", {"v_descale": None}),
            (ValueError, "have other strides", {"v_descale": self.put(np.asfortranarray(self.get(v_scale)))}),
            (ValueError, "k_new_descale and v_new_descale come with new keys", {"k": k, "v": v}),
            (ValueError, "k_new_descale and v_new_descale come with new keys", {"k_new_descale": k_new, "v_new_descale": v_new}),
            (ValueError, r"v_new_descale has the shape \[4, 2, 2\]; it must be \[batch, n, kv_heads\]", {"k": k, "v": v, "k_new_descale": k_new, "v_new_descale": v_new[:, :2]}),
            (NotImplementedError, "d11_thrift takes .*, not in fp16, s4 and fp16", {"num_splits": 1}),
            (NotImplementedError, "head dimension of 32 to 128, a multiple of 32 .d=48 is not.", {"q": self.put(self.q[..., :48].copy()), "k_cache": K[..., :24], "v_cache": V[..., :24]}),
        ):  # fmt: skip
            with self.subTest(words), self.assertRaisesRegex(error, words):
                flash_attn_with_kvcache(**{**given, **changed})
        with self.assertRaisesRegex(ValueError, "k has 63 columns; of four bits two share a byte"):
            flash_ladder.quantize_kv(self.put(self.k[..., 1:]), self.put(self.v[..., 1:]), self.dtype())
        with self.assertRaisesRegex(ValueError, r"k_descale has the shape \[4, 3\]; it must be \[batch, n, kv_heads\], here \[4, 3, 2\]"):
            flash_ladder.quantize_kv(self.put(self.k), self.put(self.v), self.dtype(), k_descale=k_new[..., 0])


class Refusals(Cached):
    """Before a byte is written. On a GPU numbers are not looked at; these are."""

    def refused(self, error, words, **changed):
        arguments = dict(q=self.q, k_cache=self.K, v_cache=self.V, k=self.k, v=self.v, cache_seqlens=self.lengths, block_table=None)
        before = self.K.tobytes()
        with self.assertRaisesRegex(error, words):
            flash_attn_with_kvcache(**(arguments | changed))
        self.assertEqual(self.K.tobytes(), before)

    def test_what_cannot_be_is_said(self):
        K, V, table = self.in_pages(16)
        pages = {"k_cache": K, "v_cache": V}
        self.refused(NotImplementedError, "rotary_cos", rotary_cos=self.q)
        self.refused(NotImplementedError, "cache_leftpad", cache_leftpad=self.lengths)
        self.refused(ValueError, "k and v, or neither", v=None)
        self.refused(ValueError, "gets 3 more; the cache has room for 320", cache_seqlens=self.lengths + 18)
        self.refused(ValueError, "has -1 keys", cache_seqlens=self.lengths - 1)
        self.refused(ValueError, "cache_seqlens is 321", cache_seqlens=321)
        self.refused(TypeError, "cache_seqlens is int64", cache_seqlens=self.lengths.astype(np.int64))
        self.refused(ValueError, "cache_seqlens has the shape", cache_seqlens=self.lengths[:3])
        self.refused(ValueError, "block_table has the shape", **pages, block_table=table[:3])
        self.refused(TypeError, "block_table is float32", **pages, block_table=table.astype(np.float32))
        self.refused(ValueError, "page 0 of sequence 1 is -1", **pages, block_table=np.where(np.arange(4)[:, None] == 1, np.int32(-1), table))
        self.refused(ValueError, "has room for 288", **pages, block_table=table[:, :18].copy())
        self.refused(ValueError, "one of them", **pages, block_table=table, cache_batch_idx=self.lengths)
        self.refused(ValueError, "k has the shape", k=self.k[:, :, :1], v=self.v[:, :, :1])
        self.refused(TypeError, "k is float32", k=self.k.astype(np.float32), v=self.v)

    def test_arguments_are_flash_attns(self):
        self.assertEqual(
            str(inspect.signature(flash_attn_with_kvcache)),
            "(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None, "
            "cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, "
            "rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False, k_descale=None, v_descale=None, "
            "k_new_descale=None, v_new_descale=None)",
        )


@unittest.skipIf(torch is None, "this Python has no torch")
class OfTorch(Caches):
    device = "cuda" if torch is not None and torch.cuda.is_available() else "cpu"

    def put(self, array):
        return torch.tensor(array, device=self.device)

    def get(self, array):
        return array.cpu().numpy()

    def test_what_pytorch_has_to_see_is_refused(self):
        q, K, V = (self.put(each) for each in (self.q, self.K, self.V))
        with self.assertRaisesRegex(NotImplementedError, "no gradients"):
            flash_attn_with_kvcache(q.requires_grad_(), K, V, cache_seqlens=0)
        with self.assertRaisesRegex(NotImplementedError, "dispatcher"), torch.overrides.BaseTorchFunctionMode():
            flash_attn_with_kvcache(q.detach(), K, V, cache_seqlens=0)

    def test_version_counters_move(self):
        K, V = self.put(self.K), self.put(self.V)
        before = K._version, V._version
        flash_attn_with_kvcache(self.put(self.q), K, V, self.put(self.k), self.put(self.v), cache_seqlens=self.put(self.lengths))
        self.assertTrue(K._version > before[0] and V._version > before[1])

    def test_nothing_is_written_where_pytorch_has_to_see_it(self):
        q, K, V, k, v, lengths = (self.put(each) for each in (self.q, self.K, self.V, self.k, self.v, self.lengths))
        before = self.get(K).tobytes()
        for given in ({"k": torch._neg_view(k)}, {"v": v.clone().requires_grad_()}):
            with self.assertRaises(NotImplementedError):
                flash_attn_with_kvcache(**{**dict(q=q, k_cache=K, v_cache=V, k=k, v=v, cache_seqlens=lengths), **given})
        with self.assertRaisesRegex(NotImplementedError, "dispatcher"), torch.overrides.BaseTorchFunctionMode():
            flash_attn_with_kvcache(q, K, V, k, v, cache_seqlens=lengths)
        self.assertEqual(self.get(K).tobytes(), before)

    @unittest.skipUnless(hasattr(getattr(torch, "Tensor", None), "__dlpack_c_exchange_api__"), "this PyTorch has no functions for C")
    def test_a_call_like_an_earlier_one_takes_few_steps_of_python(self):
        from flash_ladder import _attention, _native, _torch

        with mock.patch.object(_native, "EMULATOR", None), mock.patch.dict(_torch._calls, clear=True):  # as on a GPU
            for is_again in (False, True):
                longer = mock.patch.object(_attention, "run_and_tell", side_effect=AssertionError) if is_again else contextlib.nullcontext()
                self.setUp()
                if is_again:
                    self.k, self.v = self.v, self.k  # other numbers
                wanted = self.expected()
                for size in (None, 16):
                    K, V, options = self.K.copy(), self.V.copy(), {}
                    if size:
                        K, V, options["block_table"] = self.in_pages(size)
                    with longer:
                        self.close(self.call(K, V, **options), wanted)
                    for cache, new in ((K, self.k), (V, self.v)):
                        rows = cache[options["block_table"][3, 300 // size], 300 % size :][:NEW] if size else cache[3, 300:303]
                        self.assertEqual(rows.tobytes(), new[3].tobytes())
                    with longer:  # nothing new, and all are there
                        args = {name: self.put(each) for name, each in options.items()}
                        there = self.put(self.lengths + NEW)
                        out = flash_attn_with_kvcache(self.put(self.q), self.put(K), self.put(V), cache_seqlens=there, causal=True, **args)
                    self.close([self.get(out)], wanted[:1])
            q, K, V, k, v, lengths = (self.put(each) for each in (self.q, self.K, self.V, self.k, self.v, self.lengths))
            call = lambda **given: flash_attn_with_kvcache(
                **{**dict(q=q, k_cache=K, v_cache=V, k=k, v=v, cache_seqlens=lengths, causal=True, return_softmax_lse=True), **given})
            version = K._version
            with mock.patch.object(_attention, "run_and_tell", side_effect=AssertionError):
                call()
                self.assertGreater(K._version, version)
                # What only looks like it.
                for given in ({"k": k[:, :2], "v": v[:, :2]}, {"q": q[:, :2]}, {"causal": False}, {"causal": 1}, {"softmax_scale": 0.3}, {"cache_seqlens": lengths.long()},
                              {"k": None}, {"k": K[:, :NEW]}, {"window_size": (True, True)}, {"softcap": 0}, {"cache_batch_idx": lengths * 0}, {"alibi_slopes": q},
                              {"k": torch._neg_view(k)}, {"q": q.clone().requires_grad_()}, {"v": v.clone().requires_grad_()}, {"k_cache": None}):  # fmt: skip
                    with self.subTest(given), self.assertRaises((AssertionError, NotImplementedError, TypeError, ValueError)):
                        call(**given)
                with self.assertRaises(NotImplementedError), torch.overrides.BaseTorchFunctionMode():
                    call()


@unittest.skipIf(torch is None, "this Python has no torch")
class BytesOfTorch(Bytes):
    types = ("int8", "float8_e4m3fn")
    device = OfTorch.device
    put, get = OfTorch.put, OfTorch.get

    def dtype(self, name: str):
        return getattr(torch, name)

    def numbers(self, bytes_):
        return bytes_.float().cpu().numpy()

    def test_how_e4m3_is_rounded(self):
        numbers = torch.zeros(1, 8, 1, 16)
        numbers[0, :, 0, 0] = torch.tensor([448, 464, 1e9, -1e9, 17, 19, 2.0**-10, torch.nan])
        one = torch.ones(1, 1)
        k, *_ = flash_ladder.quantize_kv(numbers, numbers, torch.float8_e4m3fn, k_descale=one, v_descale=one)
        self.assertEqual(k.view(torch.uint8)[0, :, 0, 0].tolist(), [0x7E, 0x7E, 0x7E, 0xFE, 0x58, 0x5A, 0x00, 0x7F])


@unittest.skipIf(torch is None, "this Python has no torch")
class NibblesOfTorch(Nibbles):
    device = OfTorch.device
    put, get = OfTorch.put, OfTorch.get


if __name__ == "__main__":
    unittest.main()
