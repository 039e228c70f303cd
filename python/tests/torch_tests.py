"""attention() with PyTorch's tensors on the CPU: the operator, graphs, gradients, sequences of several lengths.
    python3 -m unittest discover -s python/tests -p torch_tests.py"""

from __future__ import annotations

import contextlib
import csv
import functools
import io
import itertools
import os
import random
import runpy
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

try:
    import torch
    import torch.utils.flop_counter
except ImportError:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import flash_ladder
import reference
from flash_ladder import _attention, _native, _torch

# Of flash-attention's own tests.
LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (799, 3), (3, 799), (1, 239), (127, 512), (1, 1))
HEADS = ((6, 6), (6, 1), (6, 2))
SEQUENCES = (  # of queries and of keys; sequences without either among them
    ([37, 0, 130, 64, 1], [37, 5, 0, 200, 300]),
    ([1] * 70, [3] * 70),  # more than a problem's text can say
    ([0, 0, 5], [0, 7, 5]),
    ([128], [128]),
)
MASKS = ({}, {"causal": True}, {"causal": True, "window_size": (20, 0)}, {"window_size": (3, 50)})
torch.set_num_threads(1)  # for matrices as small as these
WHOLE = os.environ.get("LADDER_WHOLE") == "1"


def tensors(b=1, n=128, h=2, d=128, dtype=torch.float16):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(b, n, h, d, generator=generator).to(dtype) for _ in range(3))


def expected(q, k, v, causal=False):
    by_head = [each.double().transpose(1, 2) for each in (q, k, v)]
    return torch.nn.functional.scaled_dot_product_attention(*by_head, is_causal=causal).transpose(1, 2)


class Torch(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def close(self, out, wanted):
        self.assertEqual(out.shape, wanted.shape)
        self.assertLess((out - wanted).abs().max().item(), 4e-3)

    def test_scores_of_any_size(self):
        # PyTorch's issue 121558 and what lies beside it. Where all keys are alike O is V; where each key is larger than all before it, of
        # a query's the last one leaves nothing of the others. Normal ones are attention, as anywhere.
        seen = ({}, {"causal": True}, {"causal": True, "window": (20, 0)}, {"sink": torch.tensor([2.0, -1e30])})
        cases = [*itertools.product((torch.bfloat16,), (64, 128, 256), (133120, 1e6, 1e8, 1e18), (1, 200), seen),
                 *itertools.product((torch.float16,), (64, 96, 128, 256), (6e4,), (1, 200), seen)]
        for dtype, d, size, n, options in cases if WHOLE else cases[::3]:
            with self.subTest(dtype=dtype, d=d, size=size, n=n, **options):
                _, _, v = tensors(n=n, d=d, dtype=dtype)
                large, ones = torch.full_like(v, size), torch.ones_like(v)
                out = flash_ladder.attention(large, large, large if size < 1e18 else ones, **options)
                self.assertTrue(torch.equal(out, large if size < 1e18 else ones))
                grown = (ones * torch.arange(1, n + 1)[:, None, None]).to(dtype)  # exact: at most 256
                out = flash_ladder.attention(large, grown, v, **options)
                self.assertTrue(torch.equal(out, v if options.get("causal") else v[:, -1:].expand_as(v)))
        sizes = [*itertools.product((torch.bfloat16,), (133120, 1e6, 1e8, 1e18)), (torch.float16, 8e3)]
        for (dtype, size), d, causal in itertools.product(sizes, (64, 128, 256), (False, True)):
            with self.subTest(dtype=dtype, d=d, size=size, causal=causal):
                q, k, v = tensors(n=200, d=d, dtype=dtype)
                q, k = (each.double().mul(size).to(dtype) for each in (q, k))
                self.close(flash_ladder.attention(q, k, v, causal=causal), expected(q, k, v, causal))

    def test_it_is_attention(self):
        q, k, v = tensors(b=2)
        self.close(flash_ladder.attention(q, k, v, causal=True), expected(q, k, v, True))
        out = torch.empty_like(q)
        self.assertIs(flash_ladder.attention(q, k, v, out=out), out)
        self.close(out, expected(q, k, v))
        self.close(flash_ladder.attention(q[:, ::2], k[:, ::2], v[:, ::2]), expected(q[:, ::2], k[:, ::2], v[:, ::2]))

    def test_it_says_once_that_it_is_slow(self):
        _torch._said_it_is_slow = False
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                flash_ladder.attention(*tensors())
        self.assertEqual(len(said), 1)

    def test_the_operator_is_one(self):
        for options in ({"causal": True}, {"return_lse": True, "scale": 0.3}):
            torch.library.opcheck(torch.ops.flash_ladder.attention, tensors(), options)

    def test_a_graph_has_no_break(self):
        def block(q, k, v, **options):
            return flash_ladder.attention(2 * q, k, v, **options)

        q, k, v = tensors()
        # Compiled for any backend; this one needs no C++ compiler.
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True)
        for n in (128, 64):
            few = [each[:, :n] for each in (q, k, v)]
            self.assertTrue(torch.equal(compiled(*few, causal=True), block(*few, causal=True)))
        for found, wanted in zip(compiled(q, k, v, return_lse=True), block(q, k, v, return_lse=True)):
            self.assertTrue(torch.equal(found, wanted))
        out = torch.empty_like(q)
        compiled(q, k, v, out=out)
        self.assertTrue(torch.equal(out, block(q, k, v)))

    @unittest.skipUnless(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), "this PyTorch has no functions for C")
    @mock.patch.object(_native, "EMULATOR", None)
    @mock.patch.dict(_torch._calls, clear=True)
    def test_of_calls_beside_a_cache_that_grows_the_last_are_kept(self):
        looked_at, longer = [], _attention.run_and_tell
        q = torch.randn(1, 1, 2, 128).bfloat16()

        def call(n):
            k, v = torch.randn(2, 1, n, 1, 128).bfloat16().unbind()
            wanted = expected(q, *(each.expand(-1, -1, 2, -1) for each in (k, v)))
            self.assertLess((flash_ladder.attention(q, k, v, rung="d02_split") - wanted).abs().max().item(), 0.03)

        with mock.patch.object(_attention, "run_and_tell", lambda *arguments: (looked_at.append(arguments[1].shape[1]), longer(*arguments))[1]):
            for n in range(2, 50):
                for _layer in range(2):
                    call(n)
            self.assertEqual(looked_at, list(range(2, 50)))
            for n in (49, 20, 2):  # of these the first is forgotten alone
                call(n)
            self.assertEqual(looked_at[48:], [2])

    @unittest.skipUnless(hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), "this PyTorch has no functions for C")
    @mock.patch.object(_native, "EMULATOR", None)  # as on a GPU, where the caller's thread starts the kernel
    @mock.patch.dict(_torch._calls, clear=True)
    def test_a_call_like_an_earlier_one_takes_few_steps_of_python(self):
        def drawn(n=64, h=2):
            return [torch.randn(1, n, h, 128).bfloat16() for _ in range(4)]

        def call(q, k, v, out, **options):
            self.assertIs(flash_ladder.attention(q, k, v, out=out, **options), out)
            self.assertLess((out - expected(q, k, v, options.get("causal", False))).abs().max().item(), 0.03)

        q, k, v, out = drawn()
        kinds = list(itertools.product(((64, 2), (96, 2), (64, 1), (1, 2)), (False, True)))
        for shape, causal in kinds:
            call(*drawn(*shape), causal=causal)
        flash_ladder.attention(q, k, v, return_lse=True)
        with mock.patch.object(_attention, "run_and_tell", side_effect=AssertionError):
            for shape, causal in kinds:
                call(*drawn(*shape), causal=causal)
            of_one_head = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in drawn(h=1)]  # strides that say nothing
            call(*of_one_head)
            flash_ladder.attention(*of_one_head[:3])
            found, lse = flash_ladder.attention(k, q, v, return_lse=True)
            self.assertTrue(torch.equal(found, flash_ladder.attention(k, q, v)))
            with self.assertRaises(AssertionError):  # nothing was asked so
                call(q, k, v, out, scale=0.3)
        self.assertTrue(torch.equal(lse, flash_ladder.attention(k, q, v, return_lse=True)[1]))

        # A few queries beside many keys: the kernel has a workspace, which C asks PyTorch for.
        def generating():
            return [torch.randn(1, n, heads, 128).bfloat16() for n, heads in ((1, 4), (300, 2), (300, 2))]

        flash_ladder.attention(*generating(), rung="d02_split")
        with mock.patch.object(_attention, "run_and_tell", side_effect=AssertionError):
            q1, k1, v1 = generating()
            found = flash_ladder.attention(q1, k1, v1, rung="d02_split")
        self.assertLess((found - expected(q1, *(each.repeat_interleave(2, 2) for each in (k1, v1)))).abs().max().item(), 0.03)

        # Sequences of several lengths, and intervals of keys: other numbers in tensors that are alike.
        many = [each.flatten(0, 1) for each in (torch.randn(1, 64, 2, 128).bfloat16(), *[torch.randn(1, 96, 2, 128).bfloat16() for _ in range(2)])]

        def of_lengths(n_q, n_k):
            ends = [torch.tensor([0, at, rows], dtype=torch.int32) for at, rows in ((n_q, 64), (n_k, 96))]
            return flash_ladder.flash_attn_varlen_func(*many, *ends, 64, 96, return_attn_probs=True)

        def of_interval(first, end):
            edges = [torch.full((1, 64), edge, dtype=torch.int32) for edge in (first, end)]
            return flash_ladder.attention(*(each[None] for each in many), mask_intervals=edges)

        of_lengths(20, 30), of_interval(0, 96)
        with mock.patch.object(_attention, "run_and_tell", side_effect=AssertionError):
            found, _, _ = of_lengths(30, 50)
            for begin, end, first, last in ((0, 30, 0, 50), (30, 64, 50, 96)):
                self.assertLess((found[begin:end] - expected(*(each[None, a:b] for each, (a, b) in zip(many, ((begin, end), (first, last), (first, last)))))[0]).abs().max(), 0.03)
            self.assertLess((of_interval(7, 50) - expected(many[0][None], *(each[None, 7:50] for each in many[1:]))).abs().max(), 0.03)
            for wrong in ((many[0][:, None], *many[1:]), (many[0], many[1][:90], many[2][:90])):
                with self.assertRaises((AssertionError, ValueError)):
                    flash_ladder.flash_attn_varlen_func(*wrong, *[torch.tensor([0, 9, 64], dtype=torch.int32)] * 2, 64, 96, return_attn_probs=True)

        # What only looks like it.
        off_16_bytes = torch.randn(k.numel() + 1).bfloat16()[1:].view(k.shape)
        by_head = k.transpose(1, 2).contiguous().transpose(1, 2)
        for other in (off_16_bytes, by_head, torch.nn.Parameter(k, requires_grad=False)):
            call(q, other, v, out)
        for wrong, error in ((k.half(), TypeError), (k[:, :0], ValueError), (k[0], ValueError), (k.to_sparse(), TypeError), (None, TypeError)):
            with self.assertRaises(error):
                flash_ladder.attention(q, wrong, v, out=out)
        with self.assertRaises(ValueError):
            flash_ladder.attention(q, k, v, out=k)
        with self.assertRaises(TypeError):
            flash_ladder.attention(q, k, v, out=out, causal=1)
        freed = k.clone()
        freed.untyped_storage().resize_(0)
        for given in ({"k": freed}, {"v": freed}, {"out": freed}):
            with self.assertRaisesRegex(ValueError, "freed"):
                flash_ladder.attention(**{**dict(q=q, k=k, v=v), **given})
        # And what listens, or watches.
        version = out._version
        call(q, k, v, out)
        self.assertGreater(out._version, version)
        with torch.utils.flop_counter.FlopCounterMode(display=False) as flops:
            flash_ladder.attention(q, k, v, out=out)
        self.assertEqual(flops.get_total_flops(), 4 * 64 * 64 * 2 * 128)
        self.assertEqual(torch.vmap(lambda v: flash_ladder.attention(q, k, v))(v[None]).shape, (1, *q.shape))
        self.assertIn("flash_ladder", str(torch.jit.trace(lambda q: flash_ladder.attention(q, k, v), q).graph))

    def test_tensors_without_numbers(self):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = flash_ladder.attention(*map(mode.from_tensor, tensors()))
        real = flash_ladder.attention(*tensors())
        self.assertEqual((fake.shape, fake.stride(), fake.dtype), (real.shape, real.stride(), real.dtype))

    def is_as_near(self, q, k, v, causal=False):
        """By flash-attention's rule: no further from what is right than twice what PyTorch in the same type is, and one rounding."""
        out, lse = flash_ladder.attention(q, k, v, causal=causal, return_lse=True)
        right, right_lse = reference.attention(*(each.double().numpy() for each in (q, k, v)), causal=causal)
        right = torch.from_numpy(right)
        group = q.shape[2] // k.shape[2]
        usual = eager(q, *(each.repeat_interleave(group, 2) for each in (k, v)), causal=causal).nan_to_num()
        rounding = ((right.to(q.dtype) + 0.3 - 0.3).double() - right).abs().max()
        self.assertLessEqual((out - right).abs().max(), 2 * (usual - right).abs().max() + 2 * rounding)
        self.assertTrue(((lse.numpy() == right_lse) | (abs(lse.numpy() - right_lse) < 1e-4)).all())

    def test_lengths_and_heads_as_flash_attention_tests_them(self):
        columns, types = (32, 64, 80, 96, 128, 160, 192, 224, 256), (torch.float16, torch.bfloat16)
        grid = list(itertools.product(LENGTHS, HEADS, columns, types, (False, True)))
        for (n, n_k), (h, kv), d, dtype, causal in random.sample(grid, 200 if WHOLE else 6):
            with self.subTest(f"b=1 h={h} kv={kv} nq={n} nk={n_k} d={d}" + " causal" * causal, dtype=dtype):
                generator = torch.Generator().manual_seed(n)
                self.is_as_near(*(torch.randn(1, heads, rows, d + 8, generator=generator).to(dtype).transpose(1, 2)[..., :d]
                                  for heads, rows in ((h, n), (kv, n_k), (kv, n_k))), causal)  # fmt: skip

    def test_lengths_as_pytorch_tests_them(self):
        lengths = (4, 8, 64, 128, 256, 512, 1024, 2048)
        grid = [(b, n, n_k, d, causal) for b, n, n_k, d, causal in itertools.product((1, 8), lengths, lengths, (64, 128), (False, True)) if n == n_k or not causal]
        few = [each for each in grid if each[0] * each[1] * each[2] <= 2**20]
        for b, n, n_k, d, causal in grid if WHOLE else random.sample(few, 6):
            problem = f"b={b} h=4 nq={n} nk={n_k} d={d} bf16" + " causal" * causal
            with self.subTest(problem):
                generator = torch.Generator().manual_seed(n)
                self.is_as_near(*(torch.rand(b, rows, 4, d, generator=generator).bfloat16() for rows in (n, n_k, n_k)), causal)

    @unittest.skipIf(torch.cuda.is_available(), "the model would be a large one")
    def test_input_sets_have_the_scores_that_they_are_named_for(self):
        of = runpy.run_path(str(Path(__file__).parents[1] / "measure" / "inputs.py"))
        torch.manual_seed(0)
        n, q, k = 512, torch.randn(1, 512, 4, 128), torch.randn(1, 512, 4, 128)
        for inputs, deviation in (("normal", 1), ("peaky", 16**2), ("large_logits", 8**2)):
            some_q, some_k = of["shaped"](inputs, q, k)
            self.assertAlmostEqual((some_q[0, :, 3] @ some_k[0, :, 3].T).std().item() / 128**0.5 / deviation, 1, delta=0.05, msg=inputs)
        for inputs, height in of["HEIGHTS"].items():
            some_q, some_k = of["shaped"](inputs, q, k)
            scores = some_q[0, :, 0] @ some_k[0, :, 0].T / 128**0.5
            self.assertAlmostEqual((scores[:, 0] - scores[:, 1:].mean(1)).mean().item(), height, delta=0.5, msg=inputs)
        some_q, some_k = of["shaped"]("trained", q, k)
        for head in (1, 2, 3):  # near keys hold most of a row, but for the first layer's
            scores = (some_q[0, :, head] @ some_k[0, :, head].T / 128**0.5).masked_fill(torch.ones(n, n).triu(1) > 0, float("-inf"))
            weights = scores.softmax(1)
            self.assertGreater(torch.stack([weights[i, i - 31 : i + 1].sum() for i in range(256, n)]).mean().item(), 0.7, head)
        with self.assertRaisesRegex(ValueError, "128 columns"):
            of["shaped"]("trained", torch.randn(1, 8, 1, 256), torch.randn(1, 8, 1, 256))

    def test_rungs_beside_each_other_in_a_model(self):
        prefill = runpy.run_path(str(Path(__file__).parents[1] / "measure" / "prefill.py"))
        with tempfile.NamedTemporaryFile("r", suffix=".csv") as file, contextlib.redirect_stdout(io.StringIO()):
            prefill["main"](["--rungs", "02", "38_seam", "--fp16", "--dense", "--all-heads", "--tokens", "128", "--csv", file.name])
            rows = list(csv.DictReader(file))
        self.assertEqual([row["attention"] for row in rows], ["sdpa", "02", "38_seam"])
        self.assertLess(max(float(row["unlike_sdpa"]) for row in rows), 2e-3)

    def test_functions_of_scores(self):
        q, k, v = tensors(b=2, n=77, dtype=torch.bfloat16)
        of_heads = torch.tensor([0.3, 1.5])
        for options in ({"softcap": 2.0}, {"alibi_slopes": of_heads, "causal": True}, {"sink": of_heads, "window": (20, 0)},
                        {"softcap": 5.0, "alibi_slopes": of_heads, "sink": of_heads}):  # fmt: skip
            with self.subTest(**options):
                out, lse = flash_ladder.attention(q, k, v, return_lse=True, **options)
                numbers = {name: each.numpy() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
                wanted, wanted_lse = reference.attention(*(each.double().numpy() for each in (q, k, v)), **numbers)
                self.assertLess(abs(out.double().numpy() - wanted).max(), reference.tolerance(v.double().numpy(), "bfloat16"))
                self.assertLess(abs(lse.numpy() - wanted_lse).max(), 1e-3)

    def test_what_does_not_fit_is_refused(self):
        q, k, v = tensors()
        for wrong, error in (((q.numpy(), k, v), TypeError), ((q, k.numpy(), v), TypeError), ((q, k.to("meta"), v), ValueError),
                             ((q.to("meta"),) * 3, ValueError), ((q, k.float(), v), TypeError), ((q, k[:, :5], v), ValueError),
                             ((q.to_sparse(),) * 3, (ValueError, TypeError, NotImplementedError)),
                             ((q.to(torch.int8),) * 3, TypeError)):  # fmt: skip
            with self.assertRaises(error):
                flash_ladder.attention(*wrong)


def eager(q, k, v, sink=None, scale=None, causal=False, window=None, softcap=0.0, alibi_slopes=None):
    """O in the type of its inputs, sums in float32 at least."""
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    scores = (q @ k.transpose(-1, -2)).to(torch.promote_types(q.dtype, torch.float32)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * (scores / softcap).tanh()
    behind = torch.arange(scores.shape[-1]) - torch.arange(scores.shape[-2])[:, None] - (scores.shape[-1] - scores.shape[-2])
    if alibi_slopes is not None:
        scores = scores - alibi_slopes.to(scores.dtype)[:, None, None] * behind.abs()
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2]), -torch.inf)
    if window is not None:
        scores = scores.masked_fill((behind < -window[0]) | (behind > window[1]), -torch.inf)
    if sink is not None:  # a key without a value
        scores = torch.cat((scores, sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)), -1)
        return (scores.softmax(-1)[..., :-1].to(q.dtype) @ v).transpose(1, 2)
    return (scores.softmax(-1).to(q.dtype) @ v).transpose(1, 2)


class Intervals(unittest.TestCase):
    """Documents of 50, 30 and 48 tokens."""

    def setUp(self):
        warnings.simplefilter("ignore")
        self.ends = torch.tensor([0, 50, 80, 128], dtype=torch.int32)
        document = torch.bucketize(torch.arange(128), self.ends, right=True)
        self.first, self.end = self.ends[document - 1][None].contiguous(), self.ends[document][None].contiguous()

    def test_they_are_documents(self):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = tensors(dtype=dtype)
            out = flash_ladder.attention(q, k, v, causal=True, mask_intervals=(self.first, self.end))
            by_head = [each.double().transpose(1, 2) for each in (q, k, v)]
            key, query = torch.arange(128), torch.arange(128)[:, None]
            seen = (key >= self.first[0][:, None]) & (key < self.end[0][:, None]) & (key <= query)
            wanted = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=seen).transpose(1, 2)
            self.assertLess((out - wanted).abs().max().item(), 0.03 if dtype is torch.bfloat16 else 4e-3)
            alone = flash_ladder.flash_attn_varlen_func(*(each[0] for each in (q, k, v)), self.ends, self.ends, 50, 50, causal=True)
            self.assertLess((out[0] - alone).abs().max().item(), 0.03 if dtype is torch.bfloat16 else 4e-3)

    def test_a_graph_has_no_break(self):
        def block(q, k, v, first, end):
            return flash_ladder.attention(2 * q, k, v, mask_intervals=(first, end), return_lse=True)

        arguments = *tensors(dtype=torch.bfloat16), self.first, self.end
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        for found, wanted in zip(compiled(*arguments), block(*arguments)):
            self.assertTrue(torch.equal(found, wanted))
        torch.library.opcheck(torch.ops.flash_ladder.attention, arguments[:3], {"mask_first": self.first, "mask_end": self.end})

    def test_a_call_like_an_earlier_one_reads_its_own(self):
        q, k, v = tensors(dtype=torch.bfloat16)
        one = flash_ladder.attention(q, k, v, mask_intervals=(self.first, self.end))
        other = flash_ladder.attention(q, k, v, mask_intervals=(self.first * 0, self.end))
        self.assertTrue(torch.equal(one[:, :50], other[:, :50]))
        self.assertFalse(torch.equal(one[:, 50:], other[:, 50:]))
        self.assertTrue(torch.equal(one, flash_ladder.attention(q, k, v, mask_intervals=(self.first, self.end))))

    def test_gradients_are_those_of_documents(self):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = tensors(dtype=dtype)
            k, v = (each[:, :, :1].contiguous() for each in (k, v))
            first, end = self.first.clone(), self.end.clone()
            end[0, 60:63] = first[0, 60:63]  # three queries that see nothing
            seen = (torch.arange(128) >= first[0][:, None]) & (torch.arange(128) < end[0][:, None]) & torch.ones(128, 128).tril().bool()

            def of_documents(q, k, v):
                return flash_ladder.attention(q, k, v, causal=True, mask_intervals=(first, end), return_lse=True)

            def in_double(q, k, v):
                q, k, v = (each.double().transpose(1, 2) for each in (q, k, v))
                scores = (q @ k.repeat_interleave(2, 1).mT * q.shape[-1]**-0.5).masked_fill(~seen, -1e30)
                weights = scores.softmax(-1) * seen
                return (weights @ v.repeat_interleave(2, 1)).transpose(1, 2), scores.logsumexp(-1)

            def gradients(of, on_lse):
                leaves = [each.detach().clone().requires_grad_() for each in (q, k, v)]
                out, lse = of(*leaves)
                loss = (out.double() * torch.sin(torch.arange(out.numel())).view(out.shape)).sum()
                loss = loss + lse.double()[:, :, seen.any(1)].square().sum() / 100 if on_lse else loss
                return torch.autograd.grad(loss, leaves)

            for on_lse in (False, True):
                for found, wanted in zip(gradients(of_documents, on_lse), gradients(in_double, on_lse)):
                    self.assertLess((found.double() - wanted.double()).abs().max().item(), 0.04 if dtype is torch.bfloat16 else 6e-3)
                    self.assertEqual(found.isfinite().all().item(), True)
            self.assertEqual(gradients(of_documents, False)[0][0, 60:63].abs().max().item(), 0)

    def test_gradients_that_no_rung_has_are_refused_before_the_forward_pass(self):
        intervals = self.first, self.end
        for options, why in (({"deterministic": True}, "same sums in any order"), ({"softcap": 5.0}, "has no softcap"), ({"sink": torch.zeros(2)}, "has no sink")):
            q, k, v = tensors(dtype=torch.bfloat16)
            flash_ladder.attention(q, k, v, mask_intervals=intervals, **{**options, "deterministic": False})
            with self.assertRaisesRegex(NotImplementedError, f"asks for gradients.*{why}"):
                flash_ladder.attention(q.requires_grad_(), k, v, mask_intervals=intervals, **options)

    def test_gradients_in_a_graph(self):
        def loss(q, k, v, first, end):
            return flash_ladder.attention(q, k, v, causal=True, mask_intervals=(first, end)).float().square().sum()

        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        for of in (loss, compiled):
            leaves = [each.requires_grad_() for each in tensors(dtype=torch.bfloat16)]
            wanted = torch.autograd.grad(loss(*leaves, self.first, self.end), leaves)
            for found, each in zip(torch.autograd.grad(of(*leaves, self.first, self.end), leaves), wanted):
                self.assertLess((found - each).abs().max().item(), 0.02)


class Blocks(unittest.TestCase):
    """FlexAttention's masks, by its own lists."""

    def setUp(self):
        warnings.simplefilter("ignore")
        from torch.nn.attention import flex_attention

        self.flex = flex_attention

    def mask(self, sees, n, *, batch=None, heads=None, keys=128):
        return self.flex.create_block_mask(sees, batch, heads, n, n, device="cpu", BLOCK_SIZE=(128, keys))

    def same(self, q, k, v, sees, mask):
        batch, n, heads, _ = q.shape
        at = [torch.arange(size).reshape([-1 if i == j else 1 for j in range(4)]) for i, size in enumerate((batch, heads, n, n))]
        seen = torch.broadcast_to(sees(*at), (batch, heads, n, n))
        out = flash_ladder.attention(q, k, v, block_mask=mask)
        by_head = [each.double().transpose(1, 2) for each in (q, k, v)]
        wanted = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=seen, enable_gqa=True).transpose(1, 2)
        wanted[~seen.any(-1).transpose(1, 2)] = 0
        self.assertLess((out - wanted).abs().max().item(), 0.03 if q.dtype is torch.bfloat16 else 4e-3)

    def test_masks_are_flex_attentions(self):
        document = torch.bucketize(torch.arange(300), torch.tensor([70, 100, 256]), right=True)
        masks = {
            "causal": lambda b, h, q, k: q >= k,
            "documents": lambda b, h, q, k: (document[q] == document[k]) & (q >= k),
            "dilated": lambda b, h, q, k: ((q - k) % (h + 2) == 0) & (k < 250),
            "of a sequence": lambda b, h, q, k: (k // 64 + b) % 2 == 0,
            "few": lambda b, h, q, k: (q < 128) & (k == 200),
        }
        for name, sees in masks.items():
            for dtype, keys in ((torch.bfloat16, 128), (torch.float16, 64)):
                with self.subTest(name, keys=keys):
                    q, k, v = tensors(b=2, n=300, dtype=dtype)
                    sizes = {"batch": 2, "heads": 2} if name in ("dilated", "of a sequence") else {}
                    self.same(q, k, v, sees, self.mask(sees, 300, keys=keys, **sizes))

    def test_gradients_are_those_of_its_masks(self):
        masks = {"dilated": lambda b, h, q, k: ((q - k) % (h + 2) == 0) & (k < 250), "few": lambda b, h, q, k: (q < 128) & (k == 200) & (b == 0)}
        for (name, sees), keys in itertools.product(masks.items(), (128, 64)):
            with self.subTest(name, keys=keys):
                q, k, v = (each.requires_grad_() for each in tensors(b=2, n=300, dtype=torch.bfloat16))
                at = [torch.arange(size).reshape([-1 if i == j else 1 for j in range(4)]) for i, size in enumerate((2, 2, 300, 300))]
                seen = torch.broadcast_to(sees(*at), (2, 2, 300, 300))
                scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double()) * q.shape[-1]**-0.5
                weights = scores.masked_fill(~seen, -1e30).softmax(-1) * seen
                wanted = torch.einsum("bhqk,bkhd->bqhd", weights, v.double())
                found = flash_ladder.attention(q, k, v, block_mask=self.mask(sees, 300, batch=2, heads=2, keys=keys))
                of = torch.sin(torch.arange(wanted.numel())).view(wanted.shape)
                for one, other in zip(*(torch.autograd.grad((each.double() * of).sum(), (q, k, v)) for each in (found, wanted))):
                    self.assertLess((one - other).abs().max().item(), 0.06)

    def test_a_graph_has_no_break(self):
        q, k, v = tensors(n=256, dtype=torch.bfloat16)
        lists = flash_ladder.block_lists(self.mask(lambda b, h, q, k: q >= k, 256), q, k)

        def block(q, k, v):
            return flash_ladder.attention(2 * q, k, v, block_mask=lists, return_lse=True)

        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        for found, wanted in zip(compiled(q, k, v), block(q, k, v)):
            self.assertTrue(torch.equal(found, wanted))
        leaves = [each.requires_grad_() for each in (q, k, v)]
        for wanted, found in zip(*(torch.autograd.grad(of(*leaves)[0].float().square().sum(), leaves) for of in (block, compiled))):
            self.assertLess((found - wanted).abs().max().item(), 0.03)
        q, k, v = (each.detach() for each in leaves)
        names = "block_lists block_counts block_order block_stencils block_keys block_n_q block_n_k".split()
        torch.library.opcheck(torch.ops.flash_ladder.attention, (q, k, v), dict(zip(names, lists)))

    def test_what_does_not_fit_is_refused(self):
        q, k, v = tensors(n=256, dtype=torch.bfloat16)
        mask = self.mask(lambda b, h, q, k: q >= k, 256)
        with self.assertRaisesRegex(ValueError, "blocks of 64 queries and 64 keys"):
            small = self.flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 256, 256, device="cpu", BLOCK_SIZE=64)
            flash_ladder.attention(q, k, v, block_mask=small)
        with self.assertRaisesRegex(ValueError, "and_masks"):
            flash_ladder.attention(q, k, v, block_mask=mask, causal=True)
        with self.assertRaisesRegex(ValueError, "of 256 queries and 256 keys, and q has 100"):
            flash_ladder.attention(q[:, :100], k[:, :100], v[:, :100], block_mask=mask)
        q.requires_grad_()
        for options, why in (({"deterministic": True}, "same sums in any order"), ({"softcap": 5.0}, "has no softcap"), ({"sink": torch.zeros(2)}, "has no sink")):
            with self.assertRaisesRegex(NotImplementedError, f"asks for gradients.*{why}"):
                flash_ladder.attention(q, k, v, block_mask=mask, **options)


class Gradients(unittest.TestCase):
    """Held to float64. torch.autograd.gradcheck takes differences: steps that f16 can tell apart are none of a derivative."""

    def setUp(self):
        warnings.simplefilter("ignore")

    def of(self, attend, inputs, weights, dtype=None):
        """The gradients of sum(weights * attend(inputs)), in float64."""
        inputs = [each.detach().to(dtype or each.dtype).requires_grad_() for each in inputs]
        (attend(*inputs) * weights).sum().backward()
        return [each.grad.double() for each in inputs]

    def test_they_are_those_of_attention(self):
        for b, h, n, options in ((1, 1, 64, {}), (2, 3, 128, {"scale": 0.2}), (1, 2, 256, {"causal": True}), (1, 1, 30, {"causal": True})):
            inputs = tensors(b, n, h)
            weights = torch.randn(inputs[0].shape, generator=torch.Generator().manual_seed(1)).half()
            with self.subTest(b=b, h=h, n=n, **options):
                plain = functools.partial(eager, **options)
                right, usual = self.of(plain, inputs, weights, torch.float64), self.of(plain, inputs, weights)
                for found, by_eager, wanted in zip(self.of(functools.partial(flash_ladder.attention, **options), inputs, weights), usual, right):
                    self.assertLess((found - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-11 * wanted.abs().max())

    def test_as_models_ask_for_them(self):
        problems = ((40, 70, 128, {"causal": True}), (200, 130, 96, {}), (70, 150, 80, {"window": (30, 9)}), (90, 90, 64, {"causal": True, "window": (40, 0)}), (65, 65, 40, {}),
                    (90, 130, 256, {"causal": True, "window": (70, 0)}), (70, 40, 160, {}))  # fmt: skip
        for (n, n_k, d, options), dtype in zip((*problems, *problems), itertools.cycle((torch.bfloat16, torch.float16))):
            generator = torch.Generator().manual_seed(0)
            q, k, v = (torch.randn(2, rows, heads, d, generator=generator).to(dtype) for rows, heads in ((n, 4), (n_k, 2), (n_k, 2)))
            weights = torch.randn(q.shape, generator=generator).to(dtype)

            def plain(q, k, v):
                return eager(q, *(each.repeat_interleave(2, 2) for each in (k, v)), **options)

            right, usual = self.of(plain, (q, k, v), weights, torch.float64), self.of(plain, (q, k, v), weights)
            for found, by_eager, wanted in zip(self.of(functools.partial(flash_ladder.attention, **options), (q, k, v), weights), usual, right):
                self.assertLess((found - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-8 * wanted.abs().max())

    def test_of_what_is_done_to_a_score(self):
        slopes, sink = torch.tensor([0.5, 0.25, 0.125, 0.0625]), torch.tensor([0.5, -1.0, 2.0, -torch.inf])
        problems = ((70, 130, 128, {"softcap": 2.0}), (90, 90, 64, {"causal": True, "softcap": 20.0, "scale": 0.4}), (100, 70, 96, {"alibi_slopes": slopes}),
                    (130, 130, 64, {"sink": sink, "causal": True, "window": (40, 0)}), (65, 90, 128, {"sink": sink.bfloat16(), "softcap": 3.0}),
                    (70, 70, 80, {"causal": True, "window": (50, 0), "softcap": 5.0, "alibi_slopes": slopes, "sink": sink}),
                    (80, 90, 256, {"causal": True, "softcap": 5.0, "alibi_slopes": slopes, "sink": sink}))  # fmt: skip
        for (n, n_k, d, options), dtype in itertools.product(problems, (torch.bfloat16, torch.float16)):
            generator = torch.Generator().manual_seed(0)
            q, k, v = (torch.randn(2, rows, heads, d, generator=generator).to(dtype) for rows, heads in ((n, 4), (n_k, 2), (n_k, 2)))
            weights, options = torch.randn(q.shape, generator=generator).to(dtype), dict(options)
            inputs = [q, k, v, *([options.pop("sink")] if "sink" in options else [])]

            def attend(q, k, v, *sink):
                return flash_ladder.attention(q, k, v, **options, **dict(zip(("sink",), sink)))

            def plain(q, k, v, *sink):
                return eager(q, *(each.repeat_interleave(2, 2) for each in (k, v)), *sink, **options)

            with self.subTest(n=n, n_k=n_k, d=d, dtype=dtype, **options):
                right, usual = self.of(plain, inputs, weights, torch.float64), self.of(plain, inputs, weights)
                for found, by_eager, wanted in zip(self.of(attend, inputs, weights), usual, right, strict=True):
                    self.assertLess((found - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-8 * wanted.abs().max())

    def test_of_what_is_done_to_a_score_in_sequences_of_several_lengths(self):
        n_q, n_k = [37, 0, 130, 1], [37, 5, 200, 0]
        q, k, v, *rest = packed(n_q, n_k, d=64)
        slopes, sink = torch.tensor([0.5, 0.25, 0.125, 0.0625]), torch.tensor([0.5, -1.0, 2.0, 0.0])
        weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        lengths = _attention.Packed(*rest)

        def attend(q, k, v, sink):
            return _attention.attend(q, k, v, lengths, causal=True, softcap=4.0, alibi_slopes=slopes, sink=sink)

        def plain(q, k, v, sink):
            parts = zip(*(each.split(lengths, 0) for each, lengths in ((q, n_q), (k, n_k), (v, n_k))))
            return torch.cat([eager(a[None], *(each[None].repeat_interleave(2, 2) for each in others), sink, causal=True, softcap=4.0, alibi_slopes=slopes)[0]
                              for a, *others in parts])  # fmt: skip

        right, usual = self.of(plain, (q, k, v, sink), weights, torch.float64), self.of(plain, (q, k, v, sink), weights)
        for found, by_eager, wanted in zip(self.of(attend, (q, k, v, sink), weights), usual, right, strict=True):
            self.assertLess((found - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-8 * wanted.abs().max())

    def test_strides_make_no_difference(self):
        q, k, v = tensors(2, 64, 2)
        wanted = self.of(flash_ladder.attention, (q, k, v), torch.ones(()))  # every element of dO is the same one
        weights = torch.ones(2, 64, 2, 256, dtype=q.dtype)[..., ::2]
        by_head = (each.transpose(1, 2).contiguous().transpose(1, 2) for each in (q, k, v))
        for a, b in zip(self.of(flash_ladder.attention, by_head, weights), wanted):
            self.assertTrue(torch.equal(a, b))
        together = torch.stack([q, k, v]).requires_grad_()
        flash_ladder.attention(*together).sum().backward()
        self.assertTrue(torch.equal(together.grad.double(), torch.stack(wanted)))

    def test_nothing_to_see_has_gradients_of_zero(self):
        q, k, v = (each.requires_grad_() for each in tensors(1, 64, 1))
        flash_ladder.attention(q, k[:, :0], v[:, :0]).sum().backward()
        self.assertTrue((q.grad == 0).all() and (k.grad == 0).all())

    def test_a_graph_has_no_break(self):
        def block(*inputs):
            return 2 * flash_ladder.attention(*inputs, deterministic=True)

        inputs, weights = tensors(1, 64, 1), torch.ones(())
        for a, b in zip(self.of(torch.compile(block, fullgraph=True, backend="aot_eager"), inputs, weights), self.of(block, inputs, weights)):
            self.assertTrue(torch.equal(a, b))
        all_but_graphs = ("test_schema", "test_autograd_registration", "test_faketensor")  # those take the gradient of LSE, too
        torch.library.opcheck(torch.ops.flash_ladder.attention, [each.requires_grad_() for each in inputs], {"return_lse": True}, test_utils=all_but_graphs)

    def test_the_operators_are_ones(self):
        inputs = [each.requires_grad_() for each in tensors(n=64, h=1)]
        most = ("test_schema", "test_autograd_registration", "test_faketensor")  # the other one has a loss that depends on LSE
        torch.library.opcheck(torch.ops.flash_ladder.attention, inputs, {"return_lse": True}, test_utils=most)
        q, k, v = (each.detach() for each in inputs)
        out, lse = flash_ladder.attention(q, k, v, return_lse=True)
        torch.library.opcheck(torch.ops.flash_ladder.attention_backward,
                              (torch.randn_like(out), out, lse, q, k, v, False, None, None, 0.0, None, None, None, None, 0, 0, False))  # fmt: skip

    def test_the_same_bits_in_each_run(self):
        self.addCleanup(torch.use_deterministic_algorithms, False)
        problems = ((512, 512, 2, 128, {}), (450, 500, 4, 128, {"causal": True}), (70, 450, 6, 80, {}), (400, 600, 4, 128, {"causal": True, "window": (330, 0)}),
                    (450, 450, 4, 64, {"causal": True}), (300, 520, 2, 40, {"window": (190, 200)}))  # fmt: skip
        for (n, n_k, heads, d, options), dtype in zip(problems, itertools.cycle((torch.bfloat16, torch.float16))):
            generator = torch.Generator().manual_seed(0)
            q, k, v = (torch.randn(2, rows, of, d, generator=generator).to(dtype) for rows, of in ((n, heads), (n_k, 2), (n_k, 2)))
            weights = torch.randn(q.shape, generator=generator).to(dtype)

            def plain(q, k, v):
                return eager(q, *(each.repeat_interleave(heads // 2, 2) for each in (k, v)), **options)

            def attend(q, k, v, **more):
                return flash_ladder.flash_attn_func(q, k, v, causal="causal" in options, window_size=options.get("window", (-1, -1)), **more)

            with self.subTest(n=n, n_k=n_k, heads=heads, d=d, dtype=dtype, **options):
                in_turn = functools.partial(attend, deterministic=True)
                first, *others = (self.of(in_turn, (q, k, v), weights) for _ in range(3))  # blocks begin in another order
                torch.use_deterministic_algorithms(True)
                others.append(self.of(attend, (q, k, v), weights))
                torch.use_deterministic_algorithms(False)
                for other in others:
                    self.assertTrue(all(map(torch.equal, first, other)))
                alone = self.of(in_turn, (each[1:] for each in (q, k, v)), weights[1:])  # and not beside the other sequence
                self.assertTrue(all(map(torch.equal, (each[1:] for each in first), alone)))
                right, usual = self.of(plain, (q, k, v), weights, torch.float64), self.of(plain, (q, k, v), weights)
                for found, by_eager, wanted in zip(first, usual, right):
                    self.assertLess((found - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-8 * wanted.abs().max())

    def test_who_cannot_have_them_is_told_at_once(self):
        q, k, v = (each.requires_grad_() for each in tensors(1, 64, 2))
        alone = [each.detach() for each in (q, k, v)]
        of_heads = torch.ones(2)
        for inputs, options in (((q, k, v), {"softcap": 5.0, "deterministic": True}), ((q, k, v), {"out": torch.empty_like(q)}),
                                ((q, k, v), {"sink": of_heads, "deterministic": True}), (alone, {"alibi_slopes": of_heads.clone().requires_grad_()}),
                                ([each.float() for each in (q, k, v)], {}),
                                ([each.bfloat16().repeat(1, 1, 1, 2) for each in (q, k, v)], {"deterministic": True})):  # fmt: skip
            with self.subTest(**options), self.assertRaisesRegex(NotImplementedError, "gradients"):
                flash_ladder.attention(*inputs, **options)
        out, _ = torch.ops.flash_ladder.attention(q, k, v)
        with self.assertRaises(NotImplementedError):
            out.sum().backward()

    def test_a_model_learns_as_it_does_with_eager(self):
        for options in ({}, {"softcap": 10.0}):
            losses = [self.losses(functools.partial(attend, **options), 100 if WHOLE else 22) for attend in (eager, flash_ladder.attention)]
            for step, (wanted, found) in enumerate(zip(*losses)):
                self.assertLess(abs(found - wanted), 0.02 * losses[0][0], f"step {step}")
            self.assertLess(found, losses[0][0] / 2)

    def losses(self, attend, steps: int) -> list[float]:
        """Two layers learn to say a sequence backwards."""
        torch.manual_seed(0)
        n, width, tokens = 64, 128, 16
        embed, place, head = torch.nn.Embedding(tokens, width), torch.nn.Embedding(n, width), torch.nn.Linear(width, tokens)
        layers = [(torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)) for _ in range(2)]
        parts = torch.nn.ModuleList([embed, place, head, *(each for layer in layers for each in layer)])
        optimizer = torch.optim.Adam(parts.parameters(), lr=7e-3)
        losses = []
        for _ in range(steps):
            ids = torch.randint(tokens, (8, n))
            x = embed(ids) + place.weight
            for qkv, out in layers:
                heads = (each[:, :, None].half() for each in qkv(torch.nn.functional.layer_norm(x, (width,))).chunk(3, -1))
                x = x + out(attend(*heads)[:, :, 0].float())
            loss = torch.nn.functional.cross_entropy(head(x).flatten(0, 1), ids.flip(1).flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


def ends(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def packed(n_q: list[int], n_k: list[int], h=4, kv=2, d=128, dtype=torch.bfloat16):
    """The arguments of a call."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(rows, heads, d, generator=generator).to(dtype) for rows, heads in ((sum(n_q), h), (sum(n_k), kv), (sum(n_k), kv)))
    return q, k, v, ends(n_q), ends(n_k), max(n_q), max(n_k)


class Varlen(unittest.TestCase):
    """flash_attn_varlen_func."""

    def setUp(self):
        warnings.simplefilter("ignore")

    def close(self, out, lse, q, k, v, ends_q, ends_k, **options):
        """To each sequence by itself."""
        if "window_size" in options:
            options["window"] = options.pop("window_size")
        places = [list(zip(ends, ends[1:])) for ends in (ends_q.tolist(), ends_k.tolist())]
        for (begin, end), (first, last) in zip(*places):
            q_here, k_here, v_here = (each.double().numpy()[None] for each in (q[begin:end], k[first:last], v[first:last]))
            wanted, wanted_lse = reference.attention(q_here, k_here, v_here, **options)
            self.assertLess(abs(out[begin:end].double().numpy() - wanted[0]).max(initial=0), reference.tolerance(v_here, "bfloat16"))
            lse_here = lse[:, begin:end].numpy()
            self.assertTrue(((lse_here == wanted_lse[0]) | (abs(lse_here - wanted_lse[0]) < 1e-4)).all())

    def test_each_sequence_is_attended_by_itself(self):
        several, *others = SEQUENCES
        for (n_q, n_k), options in [(several, each) for each in MASKS] + [(each, {"causal": True}) for each in others]:
            with self.subTest(n_q=n_q, n_k=n_k, **options):
                arguments = packed(n_q, n_k)
                out, lse, _ = flash_ladder.flash_attn_varlen_func(*arguments, return_attn_probs=True, **options)
                self.assertEqual((out.shape, lse.shape), (arguments[0].shape, (4, sum(n_q))))
                self.close(out, lse, *arguments[:5], **options)

    def test_lengths_as_flash_attention_tests_them(self):
        grid = list(itertools.product(LENGTHS, HEADS, MASKS, ("near", "third")))
        for (most_q, most_k), (h, kv), options, mode in grid if WHOLE else random.sample(grid, 3):
            rng = random.Random(most_q)
            n_q, n_k = ([rng.randint(max(1, most - 20 if mode == "near" else most // 3), most) for _ in range(6)] for most in (most_q, most_k))
            n_k[4] = n_k[5] = n_q[5] = 0  # every fifth and the last one
            with self.subTest(n_q=n_q, n_k=n_k, h=h, kv=kv, **options):
                arguments = packed(n_q, n_k, h, kv)
                found, lse, _ = flash_ladder.flash_attn_varlen_func(*arguments, return_attn_probs=True, **options)
                self.close(found, lse, *arguments[:5], **options)

    def test_a_sequence_does_not_see_its_neighbours(self):
        q, k, v, *lengths = packed([70, 30, 90], [70, 30, 90])
        wanted = flash_ladder.flash_attn_varlen_func(q, k, v, *lengths)
        k[70:100] = v[70:100] = torch.nan
        found = flash_ladder.flash_attn_varlen_func(q, k, v, *lengths)
        for here in (slice(0, 70), slice(100, 190)):
            self.assertTrue(torch.equal(found[here], wanted[here]))

    def test_strides_and_longer_maxima_make_no_difference(self):
        q, k, v, ends_q, ends_k, most_q, most_k = packed([40, 3, 100], [50, 20, 90])
        wanted = flash_ladder.flash_attn_varlen_func(q, k, v, ends_q, ends_k, most_q, most_k, causal=True)
        by_head = k.transpose(0, 1).contiguous().transpose(0, 1)
        apart = torch.zeros(v.numel() + 1, dtype=v.dtype)[1:].view(v.shape).copy_(v)  # 2 bytes off
        found = flash_ladder.flash_attn_varlen_func(torch.stack([q, q], 1)[:, 0], by_head, apart, ends_q, ends_k, 400, 500, causal=True)
        self.assertTrue(torch.equal(found, wanted))

    def test_nothing_to_see_is_zero_and_nothing_to_do_is_nothing(self):
        out, lse, _ = flash_ladder.flash_attn_varlen_func(*packed([3, 2], [0, 0]), return_attn_probs=True)
        self.assertTrue((out == 0).all() and (lse == -torch.inf).all())
        self.assertEqual(flash_ladder.flash_attn_varlen_func(*packed([0, 0], [3, 2])).shape, (0, 4, 128))
        q, k, v, *_ = packed([0], [0])
        self.assertEqual(flash_ladder.flash_attn_varlen_func(q, k, v, ends([]), ends([]), 0, 0).shape, q.shape)

    def gradients(self, q, k, v, *lengths, weights, **options):
        inputs = [each.detach().requires_grad_() for each in (q, k, v)]
        (flash_ladder.flash_attn_varlen_func(*inputs, *lengths, **options) * weights).sum().backward()
        return [each.grad for each in inputs]

    def test_gradients_of_keys_that_are_not_used_are_zero(self):
        q, k, v, *lengths = packed([70, 30], [70, 50])
        used = torch.tensor([60, 41], dtype=torch.int32)
        weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        here = torch.cat([torch.arange(60), torch.arange(70, 111)])
        wanted = self.gradients(q, k[here], v[here], lengths[0], ends([60, 41]), 70, 60, weights=weights, causal=True)
        found = self.gradients(q, k, v, *lengths, weights=weights, causal=True, seqused_k=used)
        for one, other in zip(found, (wanted[0], *(torch.zeros_like(k).index_copy(0, here, each) for each in wanted[1:]))):
            self.assertLess((one - other).abs().max(), 2**-6 * other.abs().max())
        compiled = torch.compile(flash_ladder.flash_attn_varlen_func, fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            self.assertTrue(torch.equal(compiled(q, k, v, *lengths, seqused_k=used), flash_ladder.flash_attn_varlen_func(q, k, v, *lengths, seqused_k=used)))
        with self.assertRaisesRegex(ValueError, "Sequence 1 has 50 keys"):
            flash_ladder.flash_attn_varlen_func(q, k, v, *lengths, seqused_k=used + 10)
        with self.assertRaisesRegex(ValueError, "different devices: seqused_k on meta, cu_seqlens_k on cpu"):
            flash_ladder.flash_attn_varlen_func(q, k, v, *lengths, seqused_k=used.to("meta"))

    def test_gradients_of_each_sequence_are_its_own(self):
        for (n_q, n_k), causal in ((SEQUENCES[0], False), (SEQUENCES[0], True), (SEQUENCES[1], True), (SEQUENCES[2], False), (([3, 2], [0, 0]), False)):
            with self.subTest(n_q=n_q, n_k=n_k, causal=causal):
                q, k, v, *lengths = packed(n_q, n_k)
                weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
                found = self.gradients(q, k, v, *lengths, weights=weights, causal=causal)

                def plain(q, k, v):
                    return eager(q, *(each.repeat_interleave(2, 2) for each in (k, v)), causal=causal)

                places = [list(zip(ends.tolist(), ends[1:].tolist())) for ends in lengths[:2]]
                of_all = [[] for _ in found]  # of each gradient the largest errors, ours and the usual ones, and the largest number
                for (begin, end), (first, last) in zip(*places):
                    if begin < end:
                        blind = end - begin if first == last else max(end - begin - last + first, 0) if causal else 0
                        self.assertTrue((found[0][begin : begin + blind] == 0).all())
                        begin += blind
                    if begin == end:
                        self.assertTrue(all((each[first:last] == 0).all() for each in found[1:]))
                        continue
                    inputs, here = [q[None, begin:end], k[None, first:last], v[None, first:last]], (slice(begin, end), *(slice(first, last),) * 2)
                    right, usual = (Gradients.of(None, plain, inputs, weights[None, begin:end], dtype) for dtype in (torch.float64, None))
                    for one, wanted, by_eager, rows, each in zip(found, right, usual, here, of_all):
                        each.append([(one[None, rows] - wanted).abs().max(), (by_eager - wanted).abs().max(), wanted.abs().max()])
                for each in of_all:
                    error, usual_error, largest = map(max, zip(*each)) if each else (0, 0, 1)
                    self.assertLess(error, 2 * usual_error + 2**-8 * largest)

    def test_gradients_have_the_same_bits_in_each_run_and_in_any_company(self):
        for d, n_q, n_k, options in ((128, [450, 0, 30, 500], [500, 64, 400, 500], {"causal": True}), (128, [300, 450], [450, 430], {"window_size": (200, 150)}),
                                     (64, [450, 90], [500, 420], {"causal": True})):  # fmt: skip
            with self.subTest(d=d, n_q=n_q, **options):
                options["deterministic"] = True
                q, k, v, *lengths = packed(n_q, n_k, d=d)
                weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
                first, *others = (self.gradients(q, k, v, *lengths, weights=weights, **options) for _ in range(3))
                for other in others:
                    self.assertTrue(all(map(torch.equal, first, other)))
                places = [list(zip(ends.tolist(), ends[1:].tolist())) for ends in lengths[:2]]
                for of_q, of_k in zip(*([slice(*each) for each in of] for of in places)):
                    own = (torch.tensor([0, of.stop - of.start], dtype=torch.int32) for of in (of_q, of_k))
                    alone = self.gradients(q[of_q], k[of_k], v[of_k], *own, *lengths[2:], weights=weights[of_q], **options)
                    for found, wanted in zip((first[0][of_q], first[1][of_k], first[2][of_k]), alone):
                        self.assertTrue(torch.equal(found, wanted))

    def test_gradients_do_not_see_the_neighbours(self):
        q, k, v, *lengths = packed([70, 30, 90], [70, 30, 90])
        weights = torch.randn(q.shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        wanted = self.gradients(q, k, v, *lengths, weights=weights)
        for each in (q, k, v, weights):
            each[70:100] = torch.nan
        for found, before in zip(self.gradients(q, k, v, *lengths, weights=weights), wanted):
            for here in (slice(0, 70), slice(100, 190)):
                self.assertTrue(torch.equal(found[here], before[here]))

    def test_the_operator_is_one(self):
        q, k, v = (each[0] for each in tensors(n=64, h=1, dtype=torch.bfloat16))
        ends = torch.tensor([0, 20, 64], dtype=torch.int32)
        torch.library.opcheck(torch.ops.flash_ladder.attention, (q, k, v),
                              {"causal": True, "cu_seqlens_q": ends, "cu_seqlens_k": ends, "max_seqlen_q": 44, "max_seqlen_k": 44})  # fmt: skip

    def test_a_graph_has_no_break(self):
        def block(q, *rest):
            return flash_ladder.flash_attn_varlen_func(2 * q, *rest, causal=True)

        arguments = packed([40, 3], [50, 20])
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(*arguments), block(*arguments)))
        q, k, v, ends_q, ends_k, most_q, most_k = arguments
        lengths = dict(cu_seqlens_q=ends_q, cu_seqlens_k=ends_k, max_seqlen_q=most_q, max_seqlen_k=most_k, return_lse=True)
        torch.library.opcheck(torch.ops.flash_ladder.attention, (q, k, v), lengths)

    def test_calls_at_random(self):
        """Half of them wrong: they end in the right answer, or in one of three exceptions."""
        rng = random.Random(None)
        seed = rng.randrange(2**32)
        for number in range(1000 if WHOLE else 40):
            rng.seed(seed + number)
            with self.subTest(seed=seed + number):
                batch = rng.randrange(1, 5)
                n_q, n_k = ([rng.choice([0, 1, rng.randrange(200)]) for _ in range(batch)] for _ in range(2))
                h = rng.choice([1, 2, 4])
                arguments = list(packed(n_q, n_k, h, rng.choice([each for each in (1, 2, 4) if h % each == 0])))
                options = rng.choice(MASKS)
                if rng.random() < 0.5:
                    found, lse, _ = flash_ladder.flash_attn_varlen_func(*arguments, return_attn_probs=True, **options)
                    self.close(found, lse, *arguments[:5], **options)
                    continue
                which = rng.randrange(7)
                value = arguments[which]
                if which < 3:
                    wrong = [value[:, :0], value[..., :64], value.float(), value[None], value.numpy, value.new_ones(len(value) + 1, *value.shape[1:])]
                elif which < 5:
                    wrong = [value + 1, value - 1, value[:-1], value.long(), value.flip(0) + 1, value[None], None, torch.cat([value, value[-1:] + 1])]
                else:
                    wrong = [max(n_q + n_k) - 1000, 2**40, None, 1.5, "x", value - 1]
                arguments[which] = rng.choice(wrong)
                with self.assertRaises((ValueError, TypeError, NotImplementedError)):
                    flash_ladder.flash_attn_varlen_func(*arguments, **options)

    def test_what_does_not_add_up_is_refused(self):
        right = packed([40, 3], [50, 20])
        q, k, v, ends_q, ends_k, most_q, most_k = right
        names = ("q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")
        for name, value, error in (
            ("q", q[None], ValueError), ("v", v[:-1], ValueError), ("q", q.half(), TypeError), ("k", k.numpy, TypeError),
            ("cu_seqlens_q", ends([40, 4]), ValueError), ("cu_seqlens_q", ends([43]), ValueError), ("cu_seqlens_k", ends([60, 10]), ValueError),
            ("cu_seqlens_q", torch.tensor([1, 40, 43], dtype=torch.int32), ValueError), ("cu_seqlens_k", torch.tensor([0, 71, 70], dtype=torch.int32), ValueError),
            ("cu_seqlens_q", ends_q.long(), TypeError), ("cu_seqlens_q", [0, 40, 43], TypeError), ("cu_seqlens_k", None, TypeError),
            ("cu_seqlens_k", ends_k[None], ValueError), ("cu_seqlens_k", ends_k[:0], ValueError), ("cu_seqlens_k", ends_k.to("meta"), ValueError),
            ("cu_seqlens_q", ends_q.repeat_interleave(2)[::2], ValueError),
            ("max_seqlen_q", 39, ValueError), ("max_seqlen_q", -1, ValueError), ("max_seqlen_k", 2**31, ValueError), ("max_seqlen_k", 20, ValueError),
            ("max_seqlen_k", 50.0, TypeError), ("max_seqlen_k", None, TypeError), ("max_seqlen_q", True, TypeError),
        ):  # fmt: skip
            with self.subTest(name, value=value), self.assertRaises(error):
                flash_ladder.flash_attn_varlen_func(**{**dict(zip(names, right)), name: value})
        for options in ({"dropout_p": 0.1}, {"block_table": torch.zeros(1)}):
            with self.subTest(**options), self.assertRaises(NotImplementedError):
                flash_ladder.flash_attn_varlen_func(*right, **options)


if __name__ == "__main__":
    unittest.main()
