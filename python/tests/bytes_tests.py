"""attention() of queries, keys and values in float8_e4m3fn, and of queries and keys in int8: with PyTorch and NumPy on the emulator and, if
it sees one, on a GPU.
    python3 -m unittest discover -s python/tests -p bytes_tests.py"""

from __future__ import annotations

import importlib.util
import unittest

import reference  # before NumPy

import flash_ladder
import numpy as np

torch = None
if importlib.util.find_spec("torch") is not None:
    import torch

BATCH, HEADS, KV, D = 2, 4, 2, 64


@unittest.skipIf(torch is None, "no PyTorch")
class OfBytes(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        rng = np.random.default_rng(5)
        draw = lambda n, heads: torch.tensor(rng.standard_normal((BATCH, n, heads, D)), device=self.device)
        self.numbers = draw(130, HEADS), draw(200, KV), draw(200, KV)
        q, k, v = self.numbers
        self.q, self.k, self.q_scale, self.k_scale = flash_ladder.quantize_kv(q, k)
        self.v, _, self.v_scale, _ = flash_ladder.quantize_kv(v, v)
        self.scales = dict(q_descale=self.q_scale, k_descale=self.k_scale, v_descale=self.v_scale)

    def meant(self):
        """The numbers that the bytes stand for."""
        pairs = (self.q, self.q_scale), (self.k, self.k_scale), (self.v, self.v_scale)
        return [(bytes_.double() * scale.double()[:, None, :, None]).cpu().numpy() for bytes_, scale in pairs]

    def assert_near(self, got, wanted):
        """Weights have a relative error of a sixteenth at most, and of a fiftieth or so on average."""
        error = (got.double().cpu() - torch.tensor(wanted)).abs()
        self.assertLess(error.max().item(), 0.04 * abs(wanted).max())
        self.assertLess(error.pow(2).mean().sqrt().item(), 0.04 * (wanted**2).mean() ** 0.5)

    def test_the_result_is_that_of_the_numbers_that_bytes_stand_for(self):
        self.assertEqual(flash_ladder.why(self.q, self.k, self.v, **self.scales).rung, "f02_two")
        for causal in (False, True):
            result, lse = flash_ladder.attention(self.q, self.k, self.v, causal=causal, return_lse=True, **self.scales)
            wanted, wanted_lse = reference.attention(*self.meant(), causal=causal)
            self.assertEqual(result.dtype, torch.bfloat16)
            self.assert_near(result, wanted)
            self.assertLess(abs(lse.double().cpu().numpy() - wanted_lse).max(), 0.01)

    def test_a_scale_is_of_its_own_head(self):
        self.q_scale[1, 3] *= 4
        self.k_scale[0, 1] *= 2
        self.v_scale[1, 0] *= 0
        result = flash_ladder.attention(self.q, self.k, self.v, **self.scales)
        self.assert_near(result, reference.attention(*self.meant())[0])
        self.assertTrue((result[1, :, :2] == 0).all())

    def test_out_says_the_type(self):
        out = torch.empty(self.q.shape, dtype=torch.float16, device=self.device)
        self.assertIs(flash_ladder.attention(self.q, self.k, self.v, out=out, **self.scales), out)
        self.assert_near(out, reference.attention(*self.meant())[0])

    def test_without_keys(self):
        result, lse = flash_ladder.attention(self.q, self.k[:, :0], self.v[:, :0], return_lse=True, **self.scales)
        self.assertEqual((result.dtype, result.abs().max().item()), (torch.bfloat16, 0))
        self.assertTrue((lse == -torch.inf).all())

    def test_what_is_refused(self):
        call = lambda **given: flash_ladder.attention(**{**dict(q=self.q, k=self.k, v=self.v), **self.scales, **given})
        cases = (
            (ValueError, "there is no v_descale", {"v_descale": None}),
            (ValueError, r"q_descale has the shape \[2, 2\]; it must be \[batch, heads\], here \[2, 4\]", {"q_descale": self.k_scale}),
            (ValueError, r"k_descale has the shape \[2, 4\]; it must be \[batch, kv_heads\], here \[2, 2\]", {"k_descale": self.q_scale}),
            (TypeError, "q_descale is torch.float64; the kernel reads float32", {"q_descale": self.q_scale.double()}),
            (TypeError, "k is torch.float16, and q torch.float8_e4m3fn", {"k": self.k.half()}),
            (TypeError, "with q_descale it is float8_e4m3fn", {name: each.half() for name, each in zip("qkv", (self.q, self.k, self.v))}),
            (TypeError, "it is one of bfloat16, float16", {"out": torch.empty(self.q.shape, device=self.device)}),
            (NotImplementedError, "softcap", {"softcap": 30.0}),
            (NotImplementedError, "mask_intervals", {"mask_intervals": (self.q, self.q)}),
        )
        for kind, words, given in cases:
            with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                call(**given)

    def test_gradients_are_refused_in_a_sentence(self):
        with self.assertRaisesRegex(NotImplementedError, "Queries, keys and values of a byte have no gradients"):
            flash_ladder.attention(self.q, self.k, self.v, **{**self.scales, "q_descale": self.q_scale.requires_grad_()})
        with torch.no_grad():
            flash_ladder.attention(self.q, self.k, self.v, **self.scales)


@unittest.skipIf(torch is None, "no PyTorch")
class OfInt8(unittest.TestCase):
    device = "cpu"

    def setUp(self):
        rng = np.random.default_rng(7)
        draw = lambda n, heads: torch.tensor(rng.standard_normal((BATCH, n, heads, D)), device=self.device)
        self.numbers = draw(130, HEADS), draw(201, KV), draw(201, KV).to(torch.float16)
        self.numbers[1][:, :, :, 5] += 30  # a column that is large in all keys alike

    def call(self, made, **options):
        q, k, q_scale, k_scale = made
        return flash_ladder.attention(q, k, self.numbers[2], q_descale=q_scale, k_descale=k_scale, **options)

    def test_the_result_is_that_of_the_numbers_that_bytes_stand_for(self):
        q, k, q_scale, k_scale = made = flash_ladder.quantize_qk(*self.numbers[:2])
        meant = [(bytes_.double() * scale.double()[..., None]).cpu().numpy() for bytes_, scale in ((q, q_scale), (k, k_scale))]
        named = dict(q_descale=q_scale, k_descale=k_scale)
        self.assertEqual(flash_ladder.why(q, k, self.numbers[2], **named).rung, "f05_exact")
        for options in ({}, {"causal": True}, {"window": (40, 7)}):
            result, lse = self.call(made, return_lse=True, **options)
            wanted, wanted_lse = reference.attention(*meant, self.numbers[2].cpu().numpy(), **options)
            self.assertEqual(result.dtype, torch.float16)
            self.assertLess((result.double().cpu() - torch.tensor(wanted)).abs().max().item(), 2e-3)
            self.assertLess(abs(lse.double().cpu().numpy() - wanted_lse).max(), 1e-4)

    def test_the_mean_of_keys_changes_no_weight_and_makes_steps_small(self):
        wanted = torch.tensor(reference.attention(*(each.double().cpu().numpy() for each in self.numbers))[0])
        errors = [(self.call(flash_ladder.quantize_qk(*self.numbers[:2], smooth_k=smooth)).double().cpu() - wanted).pow(2).mean().sqrt().item()
                  for smooth in (True, False)]  # fmt: skip
        self.assertLess(5 * errors[0], errors[1])

    def test_numpy_rounds_as_pytorch(self):
        if self.device != "cpu":
            return
        q, k = (each.float() for each in self.numbers[:2])
        for one, other in zip(flash_ladder.quantize_qk(q, k, smooth_k=False), flash_ladder.quantize_qk(q.numpy(), k.numpy(), smooth_k=False)):
            self.assertTrue((one.numpy() == other).all())

    def test_what_is_refused(self):
        q, k, q_scale, k_scale = flash_ladder.quantize_qk(*self.numbers[:2])
        named = dict(q=q, k=k, v=self.numbers[2], q_descale=q_scale, k_descale=k_scale)
        cases = (
            (ValueError, "comes with k_descale", {"k_descale": None}),
            (ValueError, "have no v_descale", {"v_descale": k_scale}),
            (ValueError, r"it must be \[batch, n_k, kv_heads\], here \[2, 201, 2\]", {"k_descale": q_scale}),
            (ValueError, "do not stand side by side", {"k_descale": k_scale.contiguous()}),
            (TypeError, "beside int8 it is one of bfloat16, float16", {"v": k}),
            (TypeError, "these are int8", {"k": self.numbers[2]}),
            (TypeError, "they must be the same", {"out": torch.empty(q.shape, dtype=torch.bfloat16, device=self.device)}),
        )
        for kind, words, given in cases:
            with self.subTest(words=words), self.assertRaisesRegex(kind, words):
                flash_ladder.attention(**{**named, **given})
        with self.assertRaisesRegex(ValueError, r"must be \[batch, n, heads, d\]"):
            flash_ladder.quantize_qk(q[0], k)


class OfInt8InNumPy(unittest.TestCase):
    def test_each_head_has_its_own_scales(self):
        rng = np.random.default_rng(7)
        draw = lambda n, heads: rng.standard_normal((BATCH, n, heads, D)) * np.arange(1, heads + 1)[:, None]
        v = draw(201, KV).astype(np.float16)
        made = flash_ladder.quantize_qk(draw(130, HEADS), draw(201, KV))
        meant = [bytes_ * scale.astype(np.float64)[..., None] for bytes_, scale in zip(made[:2], made[2:])]
        result = flash_ladder.attention(*made[:2], v, q_descale=made[2], k_descale=made[3])
        self.assertLess(abs(result - reference.attention(*meant, v)[0]).max(), 4e-3)


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "no GPU")
class OfInt8OnAGPU(OfInt8):
    device = "cuda"


@unittest.skipUnless(torch is not None and torch.cuda.is_available(), "no GPU")
class OfBytesOnAGPU(OfBytes):
    device = "cuda"


if __name__ == "__main__":
    unittest.main()
