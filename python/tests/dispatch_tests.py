"""What of PyTorch holds beside plain calls: each line of the table in docs/call.md.
    python3 -m unittest discover -s python/tests -p dispatch_tests.py"""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
import tempfile
import unittest
import warnings

if importlib.util.find_spec("torch") is None:
    print("Skipped: this Python has no torch")
    sys.exit(77)

import torch
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import flash_ladder
import reference

warnings.simplefilter("ignore")
torch.set_num_threads(1)
attention = flash_ladder.attention
BF16 = torch.bfloat16
REFUSALS = (NotImplementedError, TypeError, ValueError)


def tensors(b=1, n=64, h=2, n_k=None, d=128, dtype=torch.float16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(b, rows, h, d, generator=generator).to(dtype) for rows in (n, n_k or n, n_k or n))


def numbers(*each):
    return [one.detach().double().numpy() for one in each]


class Case(unittest.TestCase):
    def right(self, out, q, k, v, **options):
        wanted, _ = reference.attention(*numbers(q, k, v), **options)
        name = str(q.dtype).removeprefix("torch.")
        self.assertLessEqual(abs(numbers(out)[0] - wanted).max(initial=0), reference.tolerance(numbers(v)[0], name))

    def refused(self, call, words="", error=REFUSALS):
        """In a sentence of ours: none of PyTorch's insides."""
        with self.assertRaisesRegex(error, words) as refusal:
            call()
        for inside in ("storage", "setup_context", "register_autograd", "functorch", "Cannot access", "Python dispatch"):
            if inside not in words:
                self.assertNotIn(inside, str(refusal.exception))


class Ones(torch.Tensor):
    """A wrapper, whose own memory is nowhere."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def bare(each):
            return each.inner if isinstance(each, Ones) else each

        def wrapped(each):
            return Ones(each) if isinstance(each, torch.Tensor) else each

        found = func(*torch.utils._pytree.tree_map(bare, args), **torch.utils._pytree.tree_map(bare, kwargs or {}))
        return found if func in (torch.ops.aten.copy_.default,) else torch.utils._pytree.tree_map(wrapped, found)


class Deaf(Ones):
    """One that knows no operator but PyTorch's."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Listeners(Case):
    def test_a_trace_has_the_operator_in_it(self):
        q, k, v = tensors()
        for check in (True, False):
            traced = torch.jit.trace(lambda q, k, v: attention(q, k, v, causal=True), (q, k, v), check_trace=check)
            self.assertIn("flash_ladder", str(traced.graph))
            others = tensors(seed=1)
            self.right(traced(*others), *others, causal=True)
        one = torch.jit.trace(lambda a: attention(a, a, a), q)  # as it was reported
        self.right(one(k), k, k, k)
        with_lse = torch.jit.trace(lambda a: attention(a, a, a, return_lse=True), q)
        self.assertTrue(torch.equal(with_lse(k)[1], attention(k, k, k, return_lse=True)[1]))

    def test_a_trace_is_loaded_by_another_process(self):
        q, k, v = tensors()
        with tempfile.NamedTemporaryFile(suffix=".pt") as file:
            torch.jit.save(torch.jit.trace(lambda q, k, v: attention(q, k, v), (q, k, v)), file.name)
            code = f"import torch, flash_ladder; q = torch.ones(1, 8, 1, 128).half(); assert (torch.jit.load({file.name!r})(q, q, q) == 1).all()"
            subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    def test_a_trace_of_sequences_of_several_lengths(self):
        q, k, v = (each[0] for each in tensors(dtype=BF16))
        ends = torch.tensor([0, 20, 64], dtype=torch.int32)

        def call(q, k, v):
            return flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 44, 44)

        self.assertTrue(torch.equal(torch.jit.trace(call, (q, k, v))(k, q, v), call(k, q, v)))

    def test_fx(self):
        q, k, v = tensors()
        graph = torch.fx.symbolic_trace(lambda q, k, v: 2 * attention(q, k, v, causal=True, scale=0.2))
        self.assertIn("flash_ladder", graph.code)
        self.right(graph(q, k, v) / 2, q, k, v, causal=True, scale=0.2)
        for place in range(3):  # beside tensors that are known
            graph = torch.fx.symbolic_trace(lambda each: attention(*[each if place == i else one for i, one in enumerate((q, k, v))]))
            self.right(graph(q), *[q if place == i else one for i, one in enumerate((q, k, v))])
        self.assertEqual(torch.fx.symbolic_trace(lambda q: flash_ladder.flash_attn_func(q, k, v, causal=True))(q).shape, q.shape)
        from torch.fx.experimental.proxy_tensor import make_fx

        for mode in ("real", "fake", "symbolic"):
            graph = make_fx(lambda q, k, v: attention(q, k, v), tracing_mode=mode)(q, k, v)
            self.assertIn("flash_ladder", graph.code)
            self.right(graph(k, v, q), k, v, q)

    def test_export(self):
        class Model(torch.nn.Module):
            def forward(self, q, k, v):
                return attention(q, k, v, causal=True)

        q, k, v = tensors()
        exported = torch.export.export(Model(), (q, k, v))
        self.assertIn("flash_ladder", str(exported.graph))
        self.right(exported.module()(k, q, v), k, q, v, causal=True)

    def test_modes_see_each_call(self):
        seen = []

        class Dispatch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        class Function(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.append(str(func))
                return func(*args, **(kwargs or {}))

        q, k, v = tensors()
        attention(q, k, v)  # and not only the first one
        for mode in (Dispatch, Function):
            seen.clear()
            with mode():
                out = attention(q, k, v)
                self.right(out, q, k, v)
            self.assertTrue(any("flash_ladder.attention" in each for each in seen), seen)
        for count in range(2):  # a mode that answers by itself is heard

            class Answer(TorchDispatchMode):
                def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                    if "flash_ladder" in str(func):
                        return torch.full_like(args[0], 7), torch.empty(0)
                    return func(*args, **(kwargs or {}))

            with Answer():
                self.assertTrue((attention(q, k, v) == 7).all())

    def test_a_default_device_is_no_listener(self):
        q, k, v = tensors()
        torch.set_default_device("cpu")
        try:
            self.right(attention(q, k, v), q, k, v)
        finally:
            torch.set_default_device(None)

    def test_tensors_without_numbers(self):
        q, k, v = tensors()
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(each) for each in (q, k, v)]
            inside = attention(*fakes)
        outside, lse = attention(*fakes, return_lse=True)
        for each in (inside, outside):
            self.assertEqual((type(each), each.shape, each.dtype), (type(fakes[0]), q.shape, q.dtype))
        self.assertEqual(lse.shape, (1, 2, 64))
        fake = fakes[0]
        with mode:
            self.refused(lambda: attention(q, k, v), "FakeTensor")
        with FakeTensorMode(allow_non_fake_inputs=True):
            self.assertEqual(attention(q, k, v).shape, q.shape)
        for wrong, options in (((fake, k, v), {}), ((q, fake, v), {}), ((q, k, fake), {}), ((q, k, v), {"out": fake}),
                               ((q, k, v), {"sink": mode.from_tensor(torch.ones(2))}), ((q, k, v), {"alibi_slopes": mode.from_tensor(torch.ones(2))})):  # fmt: skip
            with self.subTest(options=list(options)):
                self.refused(lambda: attention(*wrong, **options), "FakeTensor")

    def test_wrappers_anywhere(self):
        q, k, v = tensors(dtype=BF16)
        slopes = torch.tensor([0.1, 0.4])
        for places in ((0,), (1,), (2,), (0, 1, 2)):
            inputs = [Ones(each) if place in places else each for place, each in enumerate((q, k, v))]
            with self.subTest(places=places):
                found = attention(*inputs)
                self.assertIsInstance(found, Ones)
                self.right(found.inner, q, k, v)
        for name in ("alibi_slopes", "sink"):
            found = attention(q, k, v, **{name: Ones(slopes)})
            self.right(found.inner, q, k, v, **{name: slopes.numpy()})
        out = Ones(torch.zeros_like(q))
        self.assertIs(attention(Ones(q), k, v, out=out), out)
        self.right(out.inner, q, k, v)
        for places in ((0,), (1,), (2,)):
            inputs = [Deaf(each) if place in places else each for place, each in enumerate((q, k, v))]
            self.refused(lambda: attention(*inputs), "Deaf: such tensors")
        for place in range(3):
            masked = [torch.masked.masked_tensor(each, each > 0) if place == i else each for i, each in enumerate(tensors())]
            self.refused(lambda: attention(*masked), "MaskedTensor: such tensors")
        self.refused(lambda: attention(Ones(q), k, v, rung="00"), "00_naive")  # our own words come through

    def test_a_subclass_that_adds_nothing(self):
        class Named(torch.Tensor):
            pass

        q, k, v = tensors()
        self.right(torch.Tensor(attention(q.as_subclass(Named), k, v).float()), q, k, v)
        self.right(attention(q, k.as_subclass(Named), v), q, k, v)
        self.right(attention(torch.nn.Parameter(q, requires_grad=False), k, torch.nn.Parameter(v, requires_grad=False)), q, k, v)

    def test_freed_memory(self):
        q, k, v = tensors()
        for name in ("q", "k", "v", "out", "view", "cut"):
            given = {"q": q.clone(), "k": k.clone(), "v": v.clone(), "out": torch.empty_like(q)}
            if name in given:
                given[name].untyped_storage().resize_(0)
            else:  # with an offset, so its address is not 0; and a storage that became smaller
                both = torch.cat([k, k])
                given["k"] = both[1:]
                both.untyped_storage().resize_(0 if name == "view" else both.untyped_storage().nbytes() - 2)
            for _ in range(2):
                with self.subTest(name):
                    self.refused(lambda: attention(**given), "freed.*storage")
        for _ in range(2):  # after a call like it
            self.right(attention(q, k, v), q, k, v)
        late = k.clone()
        attention(q, late, v)
        late.untyped_storage().resize_(0)
        self.refused(lambda: attention(q, late, v), "freed.*storage")
        sink = torch.ones(2)
        sink.untyped_storage().resize_(0)
        self.refused(lambda: attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), sink=sink), "freed.*storage")
        ends = torch.tensor([0, 64], dtype=torch.int32)
        ends.untyped_storage().resize_(0)
        self.refused(lambda: flash_ladder.flash_attn_varlen_func(q[0].bfloat16(), k[0].bfloat16(), v[0].bfloat16(), ends, ends, 64, 64), "freed.*storage")

    def test_layouts_that_are_none_of_ours(self):
        q, k, v = tensors()
        nested = torch.nested.nested_tensor([q[0], q[0, :3]])
        jagged = torch.nested.nested_tensor([q[0], q[0, :3]], layout=torch.jagged)
        for wrong in (nested, jagged, q.to_sparse(), q.float().to_mkldnn(), torch.quantize_per_tensor(q.float(), 0.1, 0, torch.qint8), q.to("meta")):  # fmt: skip
            for place in range(3):
                inputs = [wrong if place == i else each for i, each in enumerate((q, k, v))]
                with self.subTest(type=type(wrong), layout=wrong.layout, place=place):
                    self.refused(lambda: attention(*inputs))
            self.refused(lambda: attention(wrong, wrong, wrong))
            self.refused(lambda: attention(q, k, v, out=wrong))

    def test_views_that_negate(self):
        q, k, v = tensors(dtype=torch.float32)
        negative = torch.view_as_complex(torch.stack([q, q], -1)).conj().imag
        self.assertTrue(negative.is_neg())
        self.refused(lambda: attention(negative, k, v), "negative")

    def test_zeros_that_are_nowhere_and_functional_tensors(self):
        q, k, v = tensors()
        nowhere = torch._efficientzerotensor(q.shape, dtype=q.dtype)
        for inputs in ((nowhere, k, v), (q, nowhere, v), (q, k, nowhere)):
            wanted = [torch.zeros_like(q) if each is nowhere else each for each in inputs]
            for _ in range(2):
                try:
                    self.right(attention(*inputs), *wanted)
                except REFUSALS:
                    pass
        functional = torch._to_functional_tensor(q)
        found = attention(functional, k, v)
        torch._sync(found)
        self.right(torch._from_functional_tensor(found), q, k, v)

    def test_flops_are_counted(self):
        q, k, v = tensors(2, 48, 4, 80, dtype=BF16)
        few = [each[:, :, :2] for each in (k, v)]
        for inputs in ((q, k, v), (q, *few)):
            by_head = [each.transpose(1, 2) for each in inputs]
            with FlopCounterMode(display=False) as wanted:
                torch.nn.functional.scaled_dot_product_attention(*by_head, enable_gqa=True)
            with FlopCounterMode(display=False) as found:
                attention(*inputs, causal=True)
            self.assertEqual(found.get_total_flops(), 4 * 2 * 4 * 48 * 80 * 128)
            self.assertIn(wanted.get_total_flops(), (0, found.get_total_flops()))
        learned = [each.clone().requires_grad_() for each in tensors()]
        with FlopCounterMode(display=False) as found:
            attention(*learned).sum().backward()
        self.assertEqual(found.get_total_flops(), (4 + 10) * 2 * 64 * 64 * 128)
        ends_q, ends_k = (torch.tensor(each, dtype=torch.int32) for each in ([0, 20, 48], [0, 70, 80]))
        with FlopCounterMode(display=False) as found:
            flash_ladder.flash_attn_varlen_func(q[0], k[0], v[0], ends_q, ends_k, 28, 70)
        self.assertEqual(found.get_total_flops(), 4 * 4 * 128 * (20 * 70 + 28 * 10))

    def test_flops_of_the_first_call_of_a_process(self):
        code = ("import flash_ladder, torch; from torch.utils.flop_counter import FlopCounterMode; q = torch.ones(1, 8, 1, 128).half()\n"
                "with FlopCounterMode(display=False) as found: flash_ladder.attention(q, q, q)\n"
                "assert found.get_total_flops() == 4 * 8 * 8 * 128, found.get_total_flops()")  # fmt: skip
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

    def test_inference_mode(self):
        q, k, v = tensors()
        with torch.inference_mode():
            inside = [each.clone() for each in (q, k, v)]
            out = attention(*inside)
            self.right(out, q, k, v)
            self.assertIs(attention(*inside, out=out), out)
        self.right(attention(*inside), q, k, v)
        self.right(attention(q, inside[1], v), q, k, v)


class Transforms(Case):
    """torch.func, torch.vmap and forward differentiation."""

    def test_vmap_is_a_loop(self):
        q, k, v = (torch.stack([each, -each, each / 2]) for each in tensors())
        wanted = torch.stack([attention(*each) for each in zip(q, k, v)])
        self.assertTrue(torch.equal(torch.vmap(attention)(q, k, v), wanted))
        shared = torch.stack([attention(each, k[0], v[0]) for each in q])
        self.assertTrue(torch.equal(torch.vmap(attention, in_dims=(0, None, None))(q, k[0], v[0]), shared))
        last = torch.vmap(attention, in_dims=(4, 0, None), out_dims=1)(q.movedim(0, 4), k, v[0])
        self.assertTrue(torch.equal(last, torch.stack([attention(a, b, v[0]) for a, b in zip(q, k)], 1)))
        out, lse = torch.vmap(functools.partial(attention, causal=True, return_lse=True))(q, k, v)
        self.assertEqual((out.shape, lse.shape), (q.shape, (3, 1, 2, 64)))
        twice = torch.vmap(torch.vmap(attention))(q[:, None], k[:, None], v[:, None])
        self.assertTrue(torch.equal(twice[:, 0], wanted))
        self.refused(lambda: torch.vmap(lambda q, k, v: attention(q, k, v, out=torch.empty_like(q)))(q, k, v), "out")

    def test_gradients_of_torch_func(self):
        q, k, v = tensors()
        weights = tensors(seed=1)[0]

        def loss(q, k, v):
            return (attention(q, k, v) * weights).sum()

        inputs = [each.clone().requires_grad_() for each in (q, k, v)]
        wanted = torch.autograd.grad(loss(*inputs), inputs)
        same = functools.partial(self.assertLess, msg="of the largest")
        for found, each in zip(torch.func.grad(loss, argnums=(0, 1, 2))(q, k, v), wanted):
            same((found - each).abs().max(), 1e-2 * each.abs().max())
        _, back = torch.func.vjp(attention, q, k, v)
        for found, each in zip(back(weights), wanted):
            same((found - each).abs().max(), 1e-2 * each.abs().max())
        many = [torch.stack([each, each / 2]) for each in (q, k, v)]
        per_sample = torch.vmap(torch.func.grad(loss))(*many)
        for found, of_one in zip(per_sample, zip(*many)):
            each = torch.func.grad(loss)(*of_one)
            same((found - each).abs().max(), 1e-2 * each.abs().max())

    def test_second_derivatives_are_refused(self):
        q, k, v = (each.requires_grad_() for each in tensors())
        first = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)[0]  # which is no second one yet
        self.refused(lambda: first.sum().backward(), "[Ss]econd")
        q, k, v = tensors()
        self.refused(lambda: torch.func.grad(lambda q: torch.func.grad(lambda q: attention(q, k, v).sum())(q).sum())(q), "[Ss]econd")
        self.refused(lambda: torch.func.hessian(lambda q: attention(q, k, v).sum())(q[:, :1]))

    def test_forward_differentiation_is_refused(self):
        q, k, v = tensors()
        ops = torch.ops.flash_ladder.attention
        for place in range(3):
            with forward_ad.dual_level():
                inputs = [forward_ad.make_dual(each, torch.ones_like(each)) if i == place else each for i, each in enumerate((q, k, v))]
                self.refused(lambda: attention(*inputs), "[Ff]orward")
                self.refused(lambda: ops(*inputs), "[Ff]orward")
                learned = [each.requires_grad_() if i == place else each for i, each in enumerate(inputs)]
                self.refused(lambda: attention(*learned), "[Ff]orward")
        for call in (attention, lambda *inputs: ops(*inputs)[0]):
            self.refused(lambda: torch.func.jvp(call, (q, k, v), (q, k, v)), "[Ff]orward")
            self.refused(lambda: torch.func.jvp(lambda v: call(q, k, v), (v,), (v,)), "[Ff]orward")
            self.refused(lambda: torch.func.jacfwd(lambda v: call(q, k, v))(v), "[Ff]orward")
        with forward_ad.dual_level():  # in which nothing has a tangent
            self.right(attention(q, k, v), q, k, v)
            sink = forward_ad.make_dual(torch.ones(2), torch.ones(2))
            self.refused(lambda: attention(*(each.bfloat16() for each in (q, k, v)), sink=sink), "[Ff]orward")

    def test_functionalize(self):
        q, k, v = tensors()
        self.right(torch.func.functionalize(attention)(q, k, v), q, k, v)


class Memory(Case):
    """That others watch."""

    def test_who_kept_the_tensor_hears_that_it_has_changed(self):
        q, k, v = tensors()
        for dtype, options in ((torch.float16, {}), (BF16, {}), (BF16, {"causal": True}), (BF16, {"return_lse": True}), (BF16, {"sink": torch.ones(2)})):
            q, k, v = (each.to(dtype) for each in (q, k, v))
            for _ in range(2):
                b, w = torch.ones_like(q), torch.ones_like(q).requires_grad_()
                y = (b * w).sum()
                version = b._version
                attention(q, k, v, out=b, **options)
                self.assertGreater(b._version, version)
                with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                    y.backward()
        q, k, v = tensors()
        empty = torch.ones(1, 4, 2, 128).half()  # without a kernel, too
        attention(q[:, :4], k[:, :0], v[:, :0], out=empty)
        self.assertGreater(empty._version, 0)
        whole = torch.ones(2, *q.shape).half()  # of which out is a view
        attention(q, k, v, out=whole[1])
        self.assertGreater(whole._version, 0)
        before = [each._version for each in (q, k, v)]
        attention(q, k, v)
        self.assertEqual(before, [each._version for each in (q, k, v)])

    def test_parts_that_meet_have_changed(self):
        import flash_ladder.ring

        out, lse = torch.zeros(1, 4, 2, 128), torch.zeros(1, 2, 4)
        flash_ladder.ring.merge(out, lse, torch.zeros(1, 4, 2, 128, dtype=BF16), torch.zeros(1, 2, 4))
        self.assertTrue(out._version > 0 and lse._version > 0)

    def test_out_that_overlaps_itself_is_refused(self):
        q, k, v = tensors(h=1)
        memory = torch.zeros(200_000).half()
        for shape, strides in (((1, 64, 1, 128), (0, 64, 0, 1)), ((1, 64, 1, 128), (1, 127, 1, 1)), ((1, 64, 1, 128), (1, 1, 1, 64 - 1)),
                               ((1, 64, 1, 128), (1, 128, 1, 0))):  # fmt: skip
            out = torch.as_strided(memory, shape, strides)
            for _ in range(2):
                self.refused(lambda: attention(q, k, v, out=out), "out")
        fine = torch.as_strided(memory, (1, 64, 1, 128), (7, 1, 3, 64))  # columns far, rows near
        self.assertIs(attention(q, k, v, out=fine), fine)
        self.right(fine, q, k, v)
        self.assertTrue((memory[64 * 128 :] == 0).all())

    def test_out_among_the_inputs(self):
        q, k, v = (each.bfloat16() for each in tensors(h=2))
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            self.refused(lambda: attention(q, k, v, out=tensor), name)
        memory = torch.zeros(q.numel() + 4, dtype=BF16)
        self.refused(lambda: attention(q, k, v, out=memory[: q.numel()].view(q.shape), sink=memory.view(torch.float32)[:2]), "sink")


class LossOnLse(Case):
    """dS gains P dLSE."""

    def of(self, attend, inputs, weights, of_lse, dtype=None):
        inputs = [each.detach().to(dtype or each.dtype).requires_grad_() for each in inputs]
        out, lse = attend(*inputs)
        ((out * weights).sum() + (lse * of_lse).sum()).backward()
        return [torch.zeros_like(each) if each.grad is None else each.grad.double() for each in inputs]

    def plain(self, q, k, v, sink=None, scale=None, causal=False, softcap=0.0):
        group = q.shape[2] // k.shape[2]
        q, k, v = (each.transpose(1, 2) for each in (q, *(each.repeat_interleave(group, 2) for each in (k, v))))
        scores = (q @ k.transpose(-1, -2)).to(torch.promote_types(q.dtype, torch.float32)) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if softcap:
            scores = softcap * (scores / softcap).tanh()
        if causal:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + scores.shape[-1] - scores.shape[-2]), -torch.inf)
        if sink is not None:
            scores = torch.cat((scores, sink.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)), -1)
            v = torch.nn.functional.pad(v, (0, 0, 0, 1))
        return (scores.softmax(-1).to(q.dtype) @ v).transpose(1, 2), scores.logsumexp(-1)

    def test_gradients(self):
        for dtype, h, kv, n, n_k, options in ((torch.float16, 2, 2, 64, 64, {}), (torch.float16, 1, 1, 128, 128, {"causal": True, "scale": 0.2}),
                                              (BF16, 4, 2, 40, 70, {"causal": True}), (BF16, 2, 1, 33, 20, {})):  # fmt: skip
            generator = torch.Generator().manual_seed(0)
            inputs = [torch.randn(2, rows, heads, 128, generator=generator).to(dtype) for rows, heads in ((n, h), (n_k, kv), (n_k, kv))]
            of_lse = torch.randn(2, h, n, generator=generator)
            for weights in (torch.randn(inputs[0].shape, generator=generator).to(dtype), torch.zeros(inputs[0].shape, dtype=dtype)):
                for factor in (1.0, 1e-6):  # a mean over many
                    with self.subTest(dtype=dtype, n=n, factor=factor, **options):
                        plain = functools.partial(self.plain, **options)
                        right = self.of(plain, inputs, weights, of_lse * factor, torch.float64)
                        usual = self.of(plain, inputs, weights, of_lse * factor)
                        found = self.of(functools.partial(attention, return_lse=True, **options), inputs, weights, of_lse * factor)
                        step = {torch.float16: 2**-10, BF16: 2**-7}[dtype]
                        for name, one, by_eager, wanted in zip("qkv", found, usual, right):
                            self.assertLessEqual((one - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + step * wanted.abs().max() + 6e-8 * (factor < 1), name)

    def test_of_what_is_done_to_a_score(self):
        for dtype, n, n_k, d in ((torch.float16, 40, 30, 64), (BF16, 30, 40, 128)):
            q, k, v = tensors(2, n, n_k=n_k, d=d, dtype=dtype)
            inputs, of_lse = (q, k, v, torch.tensor([0.5, -torch.inf])), torch.randn(2, 2, n, generator=torch.Generator().manual_seed(3))
            rows = slice(max(n - n_k, 0), None)  # those that see a key
            for weights in (torch.ones_like(q), torch.zeros_like(q)):
                def ours(q, k, v, sink):
                    out, lse = attention(q, k, v, sink=sink, causal=True, softcap=3.0, return_lse=True)
                    return out[:, rows], lse[..., rows]

                def plain(q, k, v, sink):
                    return self.plain(q[:, rows], k, v, sink, causal=True, softcap=3.0)

                args = inputs, weights[:, rows], of_lse[..., rows]
                right, usual, found = self.of(plain, *args, torch.float64), self.of(plain, *args), self.of(ours, *args)
                for name, one, by_eager, wanted in zip(("q", "k", "v", "sink"), found, usual, right, strict=True):
                    self.assertLessEqual((one - wanted).abs().max(), 2 * (by_eager - wanted).abs().max() + 2**-7 * wanted.abs().max(), name)

    def test_lse_alone_and_rows_without_keys(self):
        q, k, v = (each.requires_grad_() for each in tensors(n=20, n_k=8, dtype=BF16))
        _, lse = attention(q, k, v, causal=True, return_lse=True)
        lse[..., 12:].sum().backward()
        self.assertTrue((q.grad[:, :12] == 0).all() and q.grad[:, 13:].abs().max() > 0 and (v.grad is None or (v.grad == 0).all()))
        self.assertTrue(q.grad.isfinite().all() and k.grad.isfinite().all())

    def test_sequences_of_several_lengths(self):
        lengths = (30, 50)
        ends = torch.tensor([0, 30, 80], dtype=torch.int32)
        q, k, v = (each[0] for each in tensors(n=80, dtype=BF16))
        of_lse = torch.randn(2, 80, generator=torch.Generator().manual_seed(3))

        def together(q, k, v):
            _, lse, _ = flash_ladder.flash_attn_varlen_func(q, k, v, ends, ends, 50, 50, causal=True, return_attn_probs=True)
            return lse

        def apart(q, k, v):
            return torch.cat([self.plain(*(each[None] for each in one), causal=True)[1][0] for one in zip(*(each.split(lengths) for each in (q, k, v)))], -1)

        found, wanted = [], []
        for attend, gradients, dtype in ((together, found, BF16), (apart, wanted, torch.float64)):
            inputs = [each.detach().to(dtype).requires_grad_() for each in (q, k, v)]
            (attend(*inputs) * of_lse).sum().backward()
            gradients += [each.grad.double() for each in inputs[:2]]
        for one, right in zip(found, wanted):
            self.assertLess((one - right).abs().max(), 2**-6 * right.abs().max())

    def test_in_a_graph_and_by_vmap(self):
        q, k, v = tensors()

        def loss(q, k, v):
            out, lse = attention(q, k, v, return_lse=True, deterministic=True)
            return out.float().sum() + (lse * lse).sum()

        inputs = [each.clone().requires_grad_() for each in (q, k, v)]
        wanted = torch.autograd.grad(loss(*inputs), inputs)
        compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
        for found, each in zip(torch.autograd.grad(compiled(*inputs), inputs), wanted):
            self.assertLess((found - each).abs().max(), 1e-2 * each.abs().max())
        torch.library.opcheck(torch.ops.flash_ladder.attention, inputs, {"return_lse": True, "deterministic": True})


class Words(Case):
    def test_numbers_of_other_libraries(self):
        import numpy as np

        q, k, v = tensors(dtype=BF16)
        wanted = attention(q, k, v, scale=0.3, softcap=5.0, window=(9, 3))
        for number in (np.float32, np.float64, torch.tensor, np.array):
            found = attention(q, k, v, scale=number(0.3), softcap=number(5.0), window=(np.int64(9), torch.tensor(3)))
            self.assertTrue(torch.equal(found, wanted))
        self.assertTrue(torch.equal(attention(q, k, v, window=(9, None)), attention(q, k, v, window=(9, -1))))
        self.assertTrue(torch.equal(attention(q, k, v, window=torch.tensor([9, 3])), attention(q, k, v, window=(9, 3))))
        self.assertTrue(torch.equal(attention(q, k, v, causal=np.bool_(True)), attention(q, k, v, causal=True)))
        ends = torch.tensor([0, 64], dtype=torch.int32)
        self.assertTrue(torch.equal(flash_ladder.flash_attn_varlen_func(q[0], k[0], v[0], ends, ends, torch.tensor(64), np.int32(64)), attention(q, k, v)[0]))
        for options in ({"scale": torch.ones(1)}, {"scale": np.bool_(True)}, {"window": (torch.tensor(True), 1)}, {"softcap": torch.tensor(1j)}, {"causal": torch.tensor(1)},
                        {"window": (torch.tensor(1.5), 0)}, {"window": torch.tensor([1, 2, 3])}):  # fmt: skip
            with self.subTest(**options):
                self.refused(lambda: attention(q, k, v, **options), next(iter(options)), TypeError)

    def test_in_a_graph(self):
        import numpy as np

        q, k, v = tensors(dtype=BF16)
        for scale, softcap in ((np.float32(0.3), 0.0), (np.float64(0.3), np.float32(5.0)), (1, 2)):
            def block(q, k, v):
                return attention(q, k, v, scale=scale, softcap=softcap, window=(9, 3))

            self.assertTrue(torch.equal(torch.compile(block, fullgraph=True, backend="aot_eager")(q, k, v), block(q, k, v)))

    def test_v_with_other_columns_is_not_taken(self):
        q, k, v = tensors()
        self.refused(lambda: attention(q, k, v[..., :64]), "columns", NotImplementedError)


class Shortcuts(Case):
    """Where nobody asks or nobody answers, no kernel runs: held against what attention is, with every feature."""

    def test_with_every_feature(self):
        of_heads = torch.tensor([0.5, -2.0])
        features = ({}, {"causal": True}, {"scale": 0.3}, {"window": (3, 0)}, {"softcap": 5.0}, {"alibi_slopes": of_heads}, {"sink": of_heads},
                    {"sink": of_heads, "causal": True, "softcap": 3.0, "alibi_slopes": of_heads})  # fmt: skip
        for b, n, n_k in ((1, 3, 0), (2, 1, 0), (1, 0, 5), (0, 3, 5), (0, 0, 0)):
            for options in features:
                q, k, v = (torch.ones(b, rows, 2, 128).bfloat16() for rows in (n, n_k, n_k))
                out, lse = attention(q, k, v, return_lse=True, **options)
                plain = {name: each.numpy() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
                wanted, wanted_lse = reference.attention(*numbers(q, k, v), **plain)
                with self.subTest(b=b, n=n, n_k=n_k, **options):
                    self.assertTrue((numbers(out)[0] == wanted).all() and out.shape == wanted.shape)
                    self.assertTrue((numbers(lse)[0] == wanted_lse).all() and lse.shape == wanted_lse.shape)
                    given = torch.full_like(q, 7)
                    self.assertIs(attention(q, k, v, out=given, **options), given)
                    self.assertTrue((given == 0).all())
                    self.assertTrue(torch.equal(torch.ops.flash_ladder.attention(q, k, v, options.get("causal", False), options.get("scale"), options.get("window"),
                                                                                 options.get("softcap", 0.0), options.get("alibi_slopes"), options.get("sink"), True)[1], lse))  # fmt: skip
        self.refused(lambda: attention(q, k, v, rung=7), "rung")

    def test_of_several_lengths(self):
        sink = torch.tensor([0.5, -2.0])
        for n_q, n_k in (([3, 2], [0, 0]), ([0, 0], [3, 2]), ([3, 2], [0, 7]), ([0], [0])):
            ends_q, ends_k = (torch.tensor([0, *each]).cumsum(0).int() for each in (n_q, n_k))
            q, k, v = (torch.ones(sum(rows), 2, 128).bfloat16() for rows in (n_q, n_k, n_k))
            packed = flash_ladder._attention.Packed(ends_q, ends_k, max(n_q), max(n_k))
            for options in ({}, {"causal": True}, {"sink": sink}):
                with self.subTest(n_q=n_q, n_k=n_k, **options):
                    out, lse = flash_ladder._attention.attend(q, k, v, packed, return_lse=True, **options)
                    self.assertEqual((out.shape, lse.shape), (q.shape, (2, sum(n_q))))
                    plain = {name: each.numpy() if isinstance(each, torch.Tensor) else each for name, each in options.items()}
                    for i in range(len(n_q)):
                        rows, columns = slice(*ends_q[i : i + 2].tolist()), slice(*ends_k[i : i + 2].tolist())
                        wanted, wanted_lse = reference.attention(*numbers(q[None, rows], k[None, columns], v[None, columns]), **plain)
                        self.assertLess(abs(numbers(out[rows])[0] - wanted[0]).max(initial=0), 0.02)
                        here = numbers(lse[:, rows])[0]
                        self.assertTrue(((here == wanted_lse[0]) | (abs(here - wanted_lse[0]) < 1e-3)).all(), (here, wanted_lse))

    def test_gradients(self):
        for b, n, n_k in ((1, 3, 0), (1, 0, 5), (0, 3, 5)):
            q, k, v = (torch.ones(b, rows, 2, 128).bfloat16().requires_grad_() for rows in (n, n_k, n_k))
            out, lse = attention(q, k, v, return_lse=True)
            (out.sum() + torch.where(lse.isfinite(), lse, 0).sum()).backward()
            self.assertTrue(all((each.grad == 0).all() and each.grad.shape == each.shape for each in (q, k, v)))


if __name__ == "__main__":
    unittest.main()
