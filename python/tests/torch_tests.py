"""attention() with PyTorch's tensors on the CPU: the operator, graphs, gradients that are not there.
    python3 -m unittest discover -s python/tests -p torch_tests.py"""

from __future__ import annotations

import itertools
import os
import random
import sys
import unittest
import warnings

try:
    import torch
except ImportError:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import flash_ladder
import reference

# Of flash-attention's own tests.
LENGTHS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (799, 3), (3, 799), (1, 239), (127, 512), (1, 1))
HEADS = ((6, 6), (6, 1), (6, 2))
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

    def test_it_is_attention(self):
        q, k, v = tensors(b=2)
        self.close(flash_ladder.attention(q, k, v, causal=True), expected(q, k, v, True))
        out = torch.empty_like(q)
        self.assertIs(flash_ladder.attention(q, k, v, out=out), out)
        self.close(out, expected(q, k, v))
        self.close(flash_ladder.attention(q[:, ::2], k[:, ::2], v[:, ::2]), expected(q[:, ::2], k[:, ::2], v[:, ::2]))

    def test_it_says_once_that_it_is_slow(self):
        from flash_ladder import _torch

        _torch._said_it_is_slow = False
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                flash_ladder.attention(*tensors())
        self.assertEqual(len(said), 1)

    def test_who_wants_gradients_is_told_at_once(self):
        q, k, v = tensors()
        q.requires_grad_()
        with self.assertRaises(NotImplementedError):
            flash_ladder.attention(q, k, v)
        with torch.no_grad():
            self.close(flash_ladder.attention(q, k, v), expected(q, k, v))
        out, _ = torch.ops.flash_ladder.attention(q, k, v)
        with self.assertRaises(NotImplementedError):
            out.sum().backward()

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

    def test_tensors_without_numbers(self):
        from torch._subclasses import FakeTensorMode

        with FakeTensorMode() as mode:
            fake = flash_ladder.attention(*map(mode.from_tensor, tensors()))
        real = flash_ladder.attention(*tensors())
        self.assertEqual((fake.shape, fake.stride(), fake.dtype), (real.shape, real.stride(), real.dtype))

    def test_lengths_and_heads_as_models_have_them(self):
        grid = list(itertools.product(LENGTHS, HEADS, (False, True)))
        for (n, n_k), (h, kv), causal in grid if WHOLE else random.sample(grid, 6):
            problem = f"b=1 h={h} kv={kv} nq={n} nk={n_k} d=128 bf16" + " causal" * causal
            with self.subTest(problem):
                if flash_ladder.why(problem, lse=True).rung is None:
                    self.skipTest(f"no rung takes {problem}")
                generator = torch.Generator().manual_seed(n)
                q, k, v = (torch.randn(1, heads, rows, 136, generator=generator).bfloat16().transpose(1, 2)[..., :128]
                           for heads, rows in ((h, n), (kv, n_k), (kv, n_k)))  # fmt: skip
                out, lse = flash_ladder.attention(q, k, v, causal=causal, return_lse=True)
                wanted, wanted_lse = reference.attention(*(each.double().numpy() for each in (q, k, v)), causal=causal)
                self.assertLess(abs(out.double().numpy() - wanted).max(), reference.tolerance(v.double().numpy(), "bfloat16"))
                self.assertTrue(((lse.numpy() == wanted_lse) | (abs(lse.numpy() - wanted_lse) < 1e-4)).all())

    def test_what_does_not_fit_is_refused(self):
        q, k, v = tensors()
        for wrong, error in (((q.numpy(), k, v), TypeError), ((q, k.numpy(), v), TypeError), ((q, k.to("meta"), v), ValueError),
                             ((q.to("meta"),) * 3, ValueError), ((q, k.float(), v), TypeError), ((q, k[:, :5], v), ValueError),
                             ((q.to_sparse(),) * 3, (ValueError, TypeError, NotImplementedError)),
                             ((q.to(torch.int8),) * 3, TypeError)):  # fmt: skip
            with self.assertRaises(error):
                flash_ladder.attention(*wrong)


if __name__ == "__main__":
    unittest.main()
