"""attention() on a GPU: streams, graphs, no waiting, no memory but the result's.
    python3 -m unittest discover -s python/tests -p gpu_tests.py"""

from __future__ import annotations

import functools
import importlib.util
import sys
import unittest

if importlib.util.find_spec("torch") is None:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import torch

if not torch.cuda.is_available():
    print("Skipped: PyTorch sees no GPU")
    sys.exit(77)

import attention_tests
import flash_ladder
import kvcache_tests
import numpy as np
import reference

DEVICE = torch.device("cuda:0")
OLD = torch.cuda.get_device_capability(DEVICE) < (8, 0)  # no rung has bf16 there, gradients or several lengths; elsewhere one that is missing is a fault
of_ampere = unittest.skipIf(OLD, "needs an A100 or newer")
SHAPE = "b=2 h=4 n=1024 d=128"  # of tensors()


def tensors(b=2, n=1024, h=4, d=128, dtype=torch.float16, device=DEVICE, n_k=None):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(b, rows, h, d, generator=generator).to(device, dtype) for rows in (n, n_k or n, n_k or n))


def expected(q, k, v, causal=False):
    by_head = [each.double().transpose(1, 2) for each in (q, k, v)]
    return torch.nn.functional.scaled_dot_product_attention(*by_head, is_causal=causal).transpose(1, 2)


def taken(text: str) -> list[str]:
    """The rungs that take a problem here."""
    why = flash_ladder.why(text, device=0)
    return ([why.rung] if why.rung else []) + why.also


class Gpu(unittest.TestCase):
    def close(self, out, wanted):
        step = {torch.float16: 2**-10, torch.bfloat16: 2**-7}[out.dtype]
        self.assertLess((out - wanted).abs().max().item(), step * 4)

    def test_every_rung_that_takes_it_is_right(self):
        for causal in (False, True):
            q, k, v = tensors()
            wanted = expected(q, k, v, causal)
            rungs = taken("b=2 h=4 n=1024 d=128" + " causal" * causal)
            self.assertTrue(rungs)
            for rung in rungs:
                with self.subTest(rung=rung, causal=causal):
                    self.close(flash_ladder.attention(q, k, v, causal=causal, rung=rung), wanted)

    @of_ampere
    def test_bf16_of_other_lengths_in_any_strides(self):
        q, k, v = tensors(n=300, n_k=1000, dtype=torch.bfloat16)
        scores = torch.ones(300, 1000, dtype=torch.bool, device=DEVICE).tril(700)
        by_head = [each.double().transpose(1, 2) for each in (q, k, v)]
        wanted = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=scores).transpose(1, 2)
        for changed in ((q, k, v), (q, k.transpose(1, 2).contiguous().transpose(1, 2), torch.stack([v, v], 3)[:, :, :, 0])):
            self.close(flash_ladder.attention(*changed, causal=True), wanted)

    def test_lse(self):
        q, k, v = tensors(b=1, n=256, h=2)
        scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) / 128**0.5
        for rung in (None, "p11", "38"):  # which writes it, or has it written beside it
            _, lse = flash_ladder.attention(q, k, v, return_lse=True, rung=rung)
            self.assertLess((lse - scores.logsumexp(-1)).abs().max().item(), 1e-4)

    def test_it_runs_in_the_current_stream(self):
        for text, dtype in ((SHAPE, torch.float16), (SHAPE + " bf16", torch.bfloat16)):
            if OLD and "bf16" in text:
                continue
            q, k, v = tensors(dtype=dtype)
            wanted = flash_ladder.attention(q, k, v)
            late = torch.zeros_like(q)
            stream = torch.cuda.Stream()
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                torch.cuda._sleep(200_000_000)  # a tenth of a second: whoever does not wait for the copy reads zeros
                late.copy_(q)
                out = flash_ladder.attention(late, k, v)
            stream.synchronize()
            self.assertTrue(torch.equal(out, wanted))

    def test_a_graph_is_replayed_with_other_numbers(self):
        for text, dtype in ((SHAPE + " causal", torch.float16), (SHAPE + " causal bf16", torch.bfloat16)):
            if OLD and "bf16" in text:
                continue
            q, k, v = tensors(dtype=dtype)
            flash_ladder.attention(q, k, v, causal=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                out = flash_ladder.attention(q, k, v, causal=True)
            for _ in range(3):
                q.normal_()
                v.normal_()
                graph.replay()
                self.assertTrue(torch.equal(out, flash_ladder.attention(q, k, v, causal=True)))

    def packed(self, n_q=(40, 300, 0, 1), n_k=(1000, 77, 5, 300)):
        ends = [torch.tensor([0, *lengths]).cumsum(0).to(DEVICE, torch.int32) for lengths in (n_q, n_k)]
        generator = torch.Generator().manual_seed(0)
        q, k, v = (torch.randn(rows, heads, 128, generator=generator).to(DEVICE, torch.bfloat16)
                   for rows, heads in ((sum(n_q), 4), (sum(n_k), 2), (sum(n_k), 2)))  # fmt: skip
        return q, k, v, *ends, max(n_q), max(n_k)

    def close_each(self, out, q, k, v, ends_q, ends_k, *_):
        places = [list(zip(ends, ends[1:])) for ends in (ends_q.tolist(), ends_k.tolist())]
        for (begin, end), (first, last) in zip(*places):
            if begin < end:
                q_here, k_here, v_here = q[None, begin:end], k[None, first:last], v[None, first:last]
                wanted, _ = reference.attention(*(each.double().cpu().numpy() for each in (q_here, k_here, v_here)), causal=True)
                self.close(out[begin:end], torch.from_numpy(wanted[0]).to(DEVICE))

    @of_ampere
    def test_sequences_of_several_lengths_in_one_call(self):
        arguments = self.packed()
        self.close_each(flash_ladder.flash_attn_varlen_func(*arguments, causal=True), *arguments)
        arguments = self.packed([1] * 300, [7] * 300)  # more than the block that plans has threads
        self.close_each(flash_ladder.flash_attn_varlen_func(*arguments, causal=True), *arguments)

    @of_ampere
    def test_a_graph_is_replayed_with_other_lengths(self):
        q, k, v, ends_q, ends_k, *most = self.packed()
        most = [2 * each for each in most]
        flash_ladder.flash_attn_varlen_func(q, k, v, ends_q, ends_k, *most, causal=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = flash_ladder.flash_attn_varlen_func(q, k, v, ends_q, ends_k, *most, causal=True)
        for n_q, n_k in (((0, 200, 140, 1), (382, 0, 500, 500)), ((100, 100, 100, 41), (300, 300, 382, 400))):
            for ends, lengths in ((ends_q, n_q), (ends_k, n_k)):
                ends[1:] = torch.tensor(lengths).cumsum(0)
            q.normal_()
            graph.replay()
            self.close_each(out, q, k, v, ends_q, ends_k)

    @of_ampere
    def test_gradients(self):
        for causal in (False, True):
            q, k, v = (each.requires_grad_() for each in tensors(n=512))
            weights = torch.randn_like(q)
            torch.cuda.set_sync_debug_mode("error")
            try:
                (flash_ladder.attention(q, k, v, causal=causal) * weights).sum().backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            same = [torch.autograd.grad(flash_ladder.attention(q, k, v, causal=causal, deterministic=True), (q, k, v), weights) for _ in range(5)]
            for other in same[1:]:
                self.assertTrue(all(map(torch.equal, same[0], other)))
            right = [each.detach().double().requires_grad_() for each in (q, k, v)]
            (expected(*right, causal) * weights).sum().backward()
            for found, wanted in zip((q.grad, k.grad, v.grad, *same[0]), 2 * right):  # of the largest, three roundings, of P, dS and the result
                self.assertLess((found - wanted.grad).abs().max().item(), 3 * 2**-11 * wanted.grad.abs().max().item())

    @of_ampere
    def test_gradients_of_several_lengths(self):
        for n_q, n_k in (((40, 300, 0, 1), (1000, 377, 5, 300)), ([3] * 300, [7] * 300)):
            q, k, v, ends_q, ends_k, *most = self.packed(n_q, n_k)
            inputs = [each.requires_grad_() for each in (q, k, v)]
            weights = torch.randn_like(q)
            torch.cuda.set_sync_debug_mode("error")
            try:
                (flash_ladder.flash_attn_varlen_func(*inputs, ends_q, ends_k, *most, causal=True) * weights).sum().backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
            in_turn = functools.partial(flash_ladder.flash_attn_varlen_func, *inputs, ends_q, ends_k, *most, causal=True, deterministic=True)
            ordered, *others = (torch.autograd.grad(in_turn(), inputs, weights) for _ in range(5))
            self.assertTrue(all(all(map(torch.equal, ordered, other)) for other in others))
            right = [each.detach().double().requires_grad_() for each in inputs]
            places = [list(zip(ends.tolist(), ends[1:].tolist())) for ends in (ends_q, ends_k)]
            for (begin, end), (first, last) in zip(*places):
                if begin < end:
                    q_here, *kv_here = right[0][None, begin:end], *(each[None, first:last].repeat_interleave(2, 2) for each in right[1:])
                    mask = torch.ones(end - begin, last - first, dtype=torch.bool, device=DEVICE).tril(last - first - end + begin)
                    by_head = [each.transpose(1, 2) for each in (q_here, *kv_here)]
                    out = torch.nn.functional.scaled_dot_product_attention(*by_head, attn_mask=mask).transpose(1, 2)
                    (out * weights[None, begin:end]).sum().backward()
            for found, wanted in zip((*(each.grad for each in inputs), *ordered), 2 * right):  # of the largest, three roundings, of P, dS and the result
                self.assertLess((found - wanted.grad).abs().max().item(), 3 * 2**-8 * wanted.grad.abs().max().item())

    @of_ampere
    @unittest.skipUnless(torch.cuda.mem_get_info()[0] > 50e9, "45 GB of memory are needed")
    def test_more_than_2_31_elements(self):
        """The last of nine sequences is what it is alone, and so are its gradients but for the order of sums."""
        draw = lambda heads: torch.randn(9, 65536, heads, 128, dtype=torch.bfloat16, device=DEVICE)
        q, k, v, dO = draw(32), draw(8), draw(8), draw(32)
        self.assertGreater(q.numel(), 2**31)
        found = []
        for first in (0, 8):
            inputs = [each[first:].detach().requires_grad_() for each in (q, k, v)]
            out = flash_ladder.attention(*inputs, causal=True)
            gradients = torch.autograd.grad(out, inputs, dO[first:])
            found.append([each[-1].clone() for each in (out.detach(), *gradients)])
            del out, gradients, inputs
        for name, among, alone in zip(("O", "dQ", "dK", "dV"), *found):
            with self.subTest(name):
                if name == "dQ":
                    self.assertLess((among - alone).float().norm().item(), 1e-3 * alone.float().norm().item())
                else:
                    self.assertTrue(torch.equal(among, alone))

    def test_nobody_waits_and_only_the_result_takes_memory(self):
        layouts = {"bhnd": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2)}
        for text, dtype, layout in ((SHAPE, torch.float16, layouts["bhnd"]), (SHAPE + " bf16", torch.bfloat16, lambda t: t)):
            if OLD and "bf16" in text:
                continue
            q, k, v = (layout(each) for each in tensors(dtype=dtype))
            out = torch.empty_like(q)  # as q lies
            flash_ladder.attention(q, k, v, out=out)
            packed = self.packed()
            torch.cuda.synchronize()
            before = torch.cuda.memory_stats()["allocation.all.allocated"]
            torch.cuda.set_sync_debug_mode("error")
            try:
                flash_ladder.attention(q, k, v, out=out)
                self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"] - before, 0, text)
                if "bf16" in text:  # the result, and the workspace
                    flash_ladder.flash_attn_varlen_func(*packed, causal=True)
                    self.assertLessEqual(torch.cuda.memory_stats()["allocation.all.allocated"] - before, 2)
            finally:
                torch.cuda.set_sync_debug_mode("default")

    def test_a_compiled_graph_has_no_break(self):
        def block(q, k, v):
            return flash_ladder.attention(2 * q, k, v, causal=True).sum(-1)

        q, k, v = tensors()
        self.assertLess((torch.compile(block, fullgraph=True)(q, k, v) - block(q, k, v)).abs().max().item(), 0.1)
        torch.library.opcheck(torch.ops.flash_ladder.attention, (q, k, v), {"causal": True})

    def test_another_gpu_than_the_current_one(self):
        if torch.cuda.device_count() < 2:
            self.skipTest("there is one GPU")
        q, k, v = tensors(device="cuda:1")
        self.close(flash_ladder.attention(q, k, v), expected(q, k, v))
        self.assertEqual(torch.cuda.current_device(), 0)
        with self.assertRaises(ValueError):
            flash_ladder.attention(q, k.to(DEVICE), v)

    def test_a_gpu_that_is_not_there_takes_nothing(self):
        self.assertIsNone(flash_ladder.why("b=1 h=1 n=128 d=128", device=77).rung)

    def test_cupy(self):
        if importlib.util.find_spec("cupy") is None:
            self.skipTest("this Python has no CuPy")
        import cupy

        q, k, v = tensors()
        found = flash_ladder.attention(*(cupy.from_dlpack(each) for each in (q, k, v)))
        self.assertTrue(torch.equal(torch.from_dlpack(found), flash_ladder.attention(q, k, v)))


class Calls(attention_tests.Calls):
    """The same calls, of which half are wrong, with tensors on the GPU."""

    def attend(self, q, k, v, **options):
        moved = {}  # what is one array stays one

        def to_gpu(value):
            if not isinstance(value, np.ndarray) or value.dtype == object:
                return value
            if id(value) not in moved:
                if value.size and 0 in value.strides:
                    tensor = torch.from_numpy(value.copy()).to(DEVICE)[:1, :1, :1, :1].expand(value.shape)
                elif value.ndim == 4:  # as most rungs want it
                    tensor = torch.from_numpy(value.swapaxes(1, 2).copy()).to(DEVICE).transpose(1, 2)
                else:
                    tensor = torch.from_numpy(value.copy()).to(DEVICE)
                moved[id(value)] = tensor
            return moved[id(value)]

        tensors, options = [*map(to_gpu, (q, k, v))], {name: to_gpu(value) for name, value in options.items()}

        def found():
            each = flash_ladder.attention(*tensors, **options)
            return tuple(one.cpu().numpy() for one in each) if isinstance(each, tuple) else each.cpu().numpy()

        first, again = found(), found()  # the second one goes the short way
        np.testing.assert_array_equal(first[0] if isinstance(first, tuple) else first, again[0] if isinstance(again, tuple) else again)
        return first


class Caches(kvcache_tests.OfTorch):
    def test_a_graph_replays_with_other_lengths(self):
        q, k, v, lengths = (self.put(each) for each in (self.q, self.k, self.v, self.lengths))
        K, V, table = (self.put(each) for each in self.in_pages(16))
        call = lambda: flash_ladder.flash_attn_with_kvcache(q, K, V, k, v, cache_seqlens=lengths, block_table=table, causal=True)
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        for shorter in (0, 60, 1):
            self.lengths = np.maximum(np.array(kvcache_tests.FEW_KEYS, np.int32) - shorter, 0)
            lengths.copy_(self.put(self.lengths))
            graph.replay()
            again = call()
            self.assertTrue(torch.equal(out, again))


if __name__ == "__main__":
    unittest.main()
