"""PyTorch: the short way to a kernel, and the operator, which is what everything that listens to calls sees."""

from __future__ import annotations

import sys
import warnings

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import _attention, _native
from ._arrays import TorchShapes, library_of

WITHOUT = "\n  For inference: with torch.no_grad(). Gradients: torch.nn.functional.scaled_dot_product_attention"
_PLAIN = (Tensor, torch.nn.Parameter)
_is_grad_enabled, _is_compiling = torch.is_grad_enabled, torch.compiler.is_compiling  # each look for a name costs a call some nanoseconds
_said_it_is_slow = False


def attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if _is_grad_enabled() and wants_gradients(q, k, v, alibi_slopes, sink, out):
        return _with_gradients(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic)
    if (
        not _is_compiling() and type(q) in _PLAIN and type(k) in _PLAIN and type(v) in _PLAIN and (out is None or type(out) in _PLAIN)
        and (alibi_slopes is None and sink is None and packed is None or _are_plain(alibi_slopes, sink, *(packed[:2] if packed else ())))
        and not _anyone_listens()
    ):  # fmt: skip
        if not _said_it_is_slow:
            _say_that_it_is_slow(q)
        found = _run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
        if found is not None:
            return found
    return _by_the_operator(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic)


@torch.compiler.disable
def attend_cache(q, k_cache, v_cache, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, cache):
    """Queries over a cache: nothing but the call itself sees it."""
    refuse_around_a_cache(q, k_cache, v_cache, alibi_slopes, *cache.given)
    if not _said_it_is_slow:
        _say_that_it_is_slow(q)
    return _run(q, k_cache, v_cache, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, cache)


def attend_bytes(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, descales):
    """Queries, keys and values of a byte: as over a cache nothing but the call itself sees it."""
    from ._bytes import run

    given = (q, k, v, alibi_slopes, sink, out, *descales.given)
    if _is_grad_enabled() and wants_gradients(*given):
        raise NotImplementedError("Queries, keys and values of a byte have no gradients." + WITHOUT)
    refuse_around_a_cache(*given)
    if not _said_it_is_slow:
        _say_that_it_is_slow(q)
    return run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, descales)


def refuse_around_a_cache(*tensors) -> None:
    if _is_grad_enabled() and wants_gradients(*tensors):
        raise NotImplementedError("A cache has no gradients." + WITHOUT)
    if not _are_plain(*tensors) or _anyone_listens():
        raise NotImplementedError("A cache is read and written past PyTorch's dispatcher: no wrapper, tracer, mode or transform sees it.\n  Without them: plain tensors.")
    if not all(library_of(each).is_plain(each) for each in tensors if isinstance(each, Tensor)):
        raise NotImplementedError("A tensor is one that the dispatcher has to see first.\n  tensor.clone()")


# ---- the short way: plain tensors, while nothing listens ------------------------------------------------------------

_is_tracing, _function_modes, _dispatch_modes = torch._C._is_tracing, torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
_innermost_transform = torch._C._functorch.peek_interpreter_stack  # of torch.func, torch.vmap among them


def _transforms():
    """None, too, while torch.compile reads on: it follows them by itself, and some releases of it answer that question wrong."""
    return None if torch.compiler.is_compiling() else _innermost_transform()


def _anyone_listens() -> bool:
    """A tracer, a mode, a transform or forward differentiation: they see what PyTorch's dispatcher sees, and no call past it."""
    return (
        _dispatch_modes() > 0
        or _innermost_transform() is not None
        or _is_tracing()
        or forward_ad._current_level >= 0
        or (_function_modes() > 0 and not _has_a_default_device_alone())
    )


def _has_a_default_device_alone() -> bool:
    """torch.set_default_device is a mode, too, and has no business with tensors that are there."""
    from torch.utils._device import DeviceContext

    return _function_modes() == 1 and isinstance(torch._C._get_function_stack_at(0), DeviceContext)


def _are_plain(*tensors) -> bool:
    """By their types; what is no tensor at all is said later."""
    for each in tensors:
        if type(each) not in _PLAIN and isinstance(each, Tensor):
            return False
    return True


def again(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, kind=None, given=(), appends=False):
    """On a GPU, of a plain tensor q, a call like an earlier one, through PyTorch's functions for C. None: there was none, or something has
    to see it. `kind` and `given` are of what stands beside q, k and v (_attention.Packed, for one); with `appends` k and v are written."""
    if (
        _is_compiling() or not (alibi_slopes is None and sink is None and (window is None or _attention.is_simple(window)))
        or not (type(k) in _PLAIN and type(v) in _PLAIN and (out is None or type(out) in _PLAIN)) or not (kind is None or _are_plain(*given))
        or (_is_grad_enabled() and wants_gradients(q, k, v, out, *given)) or _anyone_listens()
    ):  # fmt: skip
        return None
    try:
        calls = _calls.get((causal, type(causal), scale, type(scale), window, softcap, type(softcap), return_lse, rung, kind))
        if calls is None:
            return None
        if return_lse:
            *batch, n, heads, _ = q.shape
            given = torch.empty((*batch, heads, n), dtype=torch.float32, device=q.device), *given
        result = calls.again(q, k, v, out, *given) if given else calls.again(q, k, v, out)
        if result is None:
            return None
        if out is not None:
            _have_changed((out,))
        if appends:
            _have_changed((k, v))
        return (result, given[0]) if return_lse else result
    except Exception:  # something is not what it should be, and the longer way says what
        return None


def _run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed):
    """As _attention.run(), and again() knows the call from then on. None: a tensor is one that the dispatcher has to see."""
    arrays = library_of(q)
    for each in (q, k, v, out, alibi_slopes, sink, *(packed.given if packed else ())):
        if isinstance(each, Tensor) and not arrays.is_plain(each):
            return None
    result, lse, ready = _attention.run_and_tell(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
    if out is not None:
        has_changed(out)
    on_gpu = ready is not None and ready.plan.device != _native.EMULATOR
    of_bytes = isinstance(packed, _attention.Cache) and packed.scales != ()  # such calls have no short way
    if on_gpu and alibi_slopes is None and sink is None and not of_bytes and _exchange_api is not None:
        tensors = [q, k, v, result, *([lse] if return_lse else []), *(packed.given if packed else ())]
        options = causal, type(causal), scale, type(scale), window, softcap, type(softcap), return_lse, rung, packed.kind if packed else None
        if options not in _calls and len(_calls) < MOST_OPTIONS:
            _calls[options] = _native.Calls(_exchange_api, len(tensors), Tensor.is_neg)
        if options in _calls:
            make_o = torch.empty_like if q.is_contiguous() else _contiguous_like
            _calls[options].add(ready.plan, ready.layouts, tensors, make_o, *(packed.appended if packed else ()))
    return (result, lse) if return_lse else result


def _contiguous_like(q: Tensor) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


_calls: dict[tuple, _native.Calls] = {}  # of options; they stay
_exchange_api = _native.exchange_api_of(Tensor)
MOST_OPTIONS = 64
if _exchange_api is not None:
    _attention.short_ways.update(dict.fromkeys(_PLAIN, again))


def has_changed(*tensors: Tensor) -> None:
    """Of whatever a kernel has written in place: or a backward pass that kept a tensor would take its new numbers for the old ones."""
    for each in tensors:
        torch.autograd.graph.increment_version(each)


try:  # the same, in C
    _have_changed = torch._C._increment_version
    _have_changed((torch.empty(0),))
except Exception:
    def _have_changed(tensors) -> None:
        has_changed(*tensors)


def wants_gradients(*tensors) -> bool:
    for each in tensors:
        if each is not None and isinstance(each, Tensor) and each.requires_grad:
            return True
    return False


def _say_that_it_is_slow(q: Tensor) -> None:
    global _said_it_is_slow
    if not _said_it_is_slow and q.device.type == "cpu":
        _said_it_is_slow = True
        warnings.warn(
            "flash_ladder: these tensors lie on the CPU, so the GPU's kernel is emulated, instruction by instruction: a tiny model "
            "takes seconds, a large one hours. On an NVIDIA GPU: .to('cuda'). (Said once.)",
            stacklevel=4,
        )


# ---- by the operator, at some microseconds more ---------------------------------------------------------------------

_shapes = TorchShapes()


def _by_the_operator(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    arguments = q, k, v, causal, scale, window, softcap, alibi_slopes, sink
    if _has_proxies(k, v, out, alibi_slopes, sink, *(packed or ())):
        return of_proxies(*arguments, return_lse, out, rung, packed, deterministic)
    if not torch.compiler.is_compiling():  # a graph is told when it runs
        _refuse(arguments, out, rung, packed)
    result, lse = _operate(*arguments, return_lse, rung, *_spread(packed, deterministic))
    if out is not None:
        result = out.copy_(result)
    return (result, lse) if return_lse else result


def _with_gradients(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if _has_proxies(k, v, out, alibi_slopes, sink, *(packed or ())):
        return of_proxies(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic)
    if out is not None or wants_gradients(alibi_slopes):
        raise NotImplementedError(f"{'Into out' if out is not None else 'Of alibi_slopes'} there are no gradients.{WITHOUT}")
    arguments = q, k, v, causal, scale, window, softcap, alibi_slopes, sink
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if not torch.compiler.is_compiling():  # a graph is told when it runs
        _refuse(arguments, out, rung, packed)
        try:
            _attention.check_gradients(*arguments, rung, packed, deterministic, arrays=_shapes)
        except NotImplementedError as reason:
            any_order = "\n  In any order: deterministic=False, without torch.use_deterministic_algorithms(True)" if deterministic else ""
            raise NotImplementedError(f"A tensor asks for gradients. {reason}{any_order}{WITHOUT}") from None
    result, lse = _operate(*arguments, True, rung, *_spread(packed, deterministic))
    return (result, lse) if return_lse else result


def _spread(packed, deterministic) -> tuple:
    """As the operator takes them, one by one."""
    none = (None, None, 0, 0), (None, None), (None, None, None, None, 0, 0, 0)
    if isinstance(packed, _attention.MaskIntervals):
        return *none[0], deterministic, *packed, *none[2]
    if isinstance(packed, _attention.BlockLists):
        return *none[0], deterministic, *none[1], *packed
    return *(packed or none[0]), deterministic, *none[1], *none[2]


def _refuse(arguments, out, rung, packed) -> None:
    """What would otherwise end in a sentence of PyTorch's insides."""
    q, k, v, causal, scale, window, softcap, alibi_slopes, sink = arguments
    tensors = {"q": q, "k": k, "v": v, "alibi_slopes": alibi_slopes, "sink": sink, "out": out}
    tensors |= dict(zip(packed._fields[:2], packed)) if packed else {}
    tensors = {name: each for name, each in tensors.items() if isinstance(each, Tensor)}
    for each in tensors.values():
        _shapes.refuse_kind(each)
    refuse_tangents(tensors.values())
    call = _attention.Call(_shapes, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed)
    _attention._named(rung)
    if out is not None:
        if _transforms() is not None:
            raise NotImplementedError("out: under torch.func and torch.vmap nothing is written in place.\n  Without it: the result is a new tensor")
        call.check_out(out)
    _refuse_numbers_beside_none(tensors)


def _refuse_numbers_beside_none(tensors: dict) -> None:
    """Of tensors with numbers and without, one call knows no result."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    fake, real = ({name: each for name, each in tensors.items() if isinstance(each, FakeTensor) is is_fake} for is_fake in (True, False))
    modes = [each for each in _get_current_dispatch_mode_stack() if isinstance(each, FakeTensorMode)] + [each.fake_mode for each in fake.values()]
    if modes and real and not all(each.allow_non_fake_inputs for each in modes):
        where = f"{' and '.join(fake)}: without numbers, a FakeTensor" if fake else "A FakeTensorMode is at work"
        raise TypeError(f"{where}, and {' and '.join(real)} with numbers.\n  fake_mode.from_tensor(...) takes them away")


def refuse_tangents(tensors) -> None:
    if forward_ad._current_level < 0:
        return
    for each in tensors:
        if isinstance(each, Tensor) and each.is_floating_point() and forward_ad.unpack_dual(each).tangent is not None:
            raise NotImplementedError(f"Forward differentiation: no rung carries a tangent along.{WITHOUT}")


def _operate(*arguments):
    tensors = [each for each in arguments if isinstance(each, Tensor)]
    if _transforms() is not None and torch.is_grad_enabled() and wants_gradients(*tensors):
        return _Attention.apply(None, *arguments)  # torch.func takes it apart, which it cannot below the operator
    if all(type(each) in _PLAIN for each in tensors):
        return torch.ops.flash_ladder.attention(*arguments)
    try:
        return torch.ops.flash_ladder.attention(*arguments)
    except (AssertionError, RuntimeError, TypeError) as reason:
        if torch.compiler.is_compiling() or _is_ours(reason):
            raise
        kinds = ", ".join({type(each).__name__ for each in tensors if type(each) not in _PLAIN})
        raise NotImplementedError(f"{kinds}: such tensors do not take flash_ladder's operator.\n  {reason}") from reason


def _is_ours(reason: BaseException) -> bool:
    """By the last of its frames."""
    at = reason.__traceback__
    while at.tb_next is not None:
        at = at.tb_next
    return at.tb_frame.f_globals.get("__package__") == __package__


def _has_proxies(*arguments) -> bool:
    return any(type(each).__module__ == "torch.fx.proxy" for each in arguments)


def of_proxies(*arguments):
    """In torch.fx.symbolic_trace: the operator is a node of the graph."""
    q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic = arguments
    if out is not None:
        raise NotImplementedError("out: torch.fx traces functions that write nothing.\n  Without it: the result is a new tensor")
    found = torch.ops.flash_ladder.attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, rung, *_spread(packed, deterministic))
    return (found[0], found[1]) if return_lse else found[0]


# Registered by hand, for torch.library.custom_op has a kernel for autograd that loses tangents.
_library = torch.library.Library("flash_ladder", "DEF")
_OPTIONS = (
    "bool causal=False, Scalar? scale=None, SymInt[]? window=None, Scalar softcap=0.0, Tensor? alibi_slopes=None, Tensor? sink=None"
)
_PACKED = "Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, SymInt max_seqlen_q=0, SymInt max_seqlen_k=0, bool deterministic=False"

_INTERVALS = "Tensor? mask_first=None, Tensor? mask_end=None"
_BLOCKS = (
    "Tensor? block_lists=None, Tensor? block_counts=None, Tensor? block_order=None, Tensor? block_stencils=None, int block_keys=0, "
    "SymInt block_n_q=0, SymInt block_n_k=0"
)


def operator(schema: str, kernel, fake, autograd, *tags: str) -> None:
    name = schema.partition("(")[0]
    _library.define(schema, tags=[getattr(torch.Tag, tag) for tag in ("pt2_compliant_tag", *tags) if hasattr(torch.Tag, tag)])
    for key in ("CPU", "CUDA"):
        _library.impl(name, kernel, key)
    torch.library.register_fake(f"flash_ladder::{name}", fake, lib=_library)
    _library.impl(name, autograd, "Autograd", with_keyset=True)
    if hasattr(torch.library, "register_vmap"):  # from PyTorch 2.5 on
        torch.library.register_vmap(f"flash_ladder::{name}", lambda info, in_dims, *arguments: _one_by_one(name, info, in_dims, arguments), lib=_library)


def _one_by_one(name: str, info, in_dims, arguments):
    """torch.vmap, as a loop."""
    def of(i: int):
        return [each if dim is None else each.select(dim, i) for each, dim in zip(arguments, in_dims)]

    results = [getattr(torch.ops.flash_ladder, name)(*of(i)) for i in range(info.batch_size)]
    if not results:
        raise NotImplementedError("torch.vmap over nothing: there is no call to take the result's shape from.")
    if isinstance(results[0], Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(each) for each in zip(*results)), (0,) * len(results[0])


def below_autograd(op, keyset, arguments):
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *arguments)


def _packed_of(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, mask_first, mask_end, blocks):
    """As _spread() takes it apart."""
    if blocks and blocks[0] is not None:
        return _attention.BlockLists(*blocks)
    if mask_first is not None:
        return _attention.MaskIntervals(mask_first, mask_end)
    return None if cu_seqlens_q is None else _attention.Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)


def _kernel(
    q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, return_lse=False, rung=None,
    cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0, deterministic=False, mask_first=None, mask_end=None,
    *blocks,
):  # fmt: skip
    _say_that_it_is_slow(q)
    packed = _packed_of(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, mask_first, mask_end, blocks)
    window = None if window is None else tuple(window)
    result = _attention.run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, None, rung, packed)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


def _fake(
    q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, return_lse=False, rung=None,
    cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0, deterministic=False, mask_first=None, mask_end=None,
    *blocks,
):  # fmt: skip
    *batch, n, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((*batch, heads, n) if return_lse else (0,), dtype=torch.float32)


def _autograd(keyset, *arguments):
    refuse_tangents(arguments)
    if torch.is_grad_enabled() and wants_gradients(*arguments):
        if _transforms() is not None:
            raise NotImplementedError("torch.func's gradients of the operator itself: it is taken apart above it.\n  flash_ladder.attention has them")
        return _Attention.apply(keyset, *_filled(arguments))
    return below_autograd(torch.ops.flash_ladder.attention.default, keyset, arguments)


def _filled(arguments) -> tuple:
    """With what the dispatcher has left out, because it is a default."""
    return (*arguments, *(each.default_value for each in torch.ops.flash_ladder.attention.default._schema.arguments[len(arguments) :]))


class _Attention(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(keyset, *arguments):
        if keyset is None:
            return torch.ops.flash_ladder.attention(*arguments)
        return below_autograd(torch.ops.flash_ladder.attention.default, keyset, arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, _, _, cu_seqlens_q, cu_seqlens_k, *rest = inputs
        ctx.save_for_backward(q, k, v, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, *rest[3:9], *output)
        ctx.options, ctx.rest = (causal, scale, window, softcap), (rest[:3], rest[9:])  # longest, and deterministic; sizes of lists
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, d_out, d_lse):
        q, k, v, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, *masks, out, lse = ctx.saved_tensors
        if ctx.needs_input_grad[8]:
            raise NotImplementedError(f"Of alibi_slopes there are no gradients.{WITHOUT}")
        if lse.numel() == 0 and out.numel() > 0:
            raise NotImplementedError("Gradients need LSE: return_lse=True, or flash_ladder.attention, which sees to that.")
        of_lengths, of_lists = ctx.rest
        rest = *ctx.options, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, *of_lengths, *masks, *of_lists

        def backward(d_out, out, v):
            if _transforms() is not None:
                return _Backward.apply(None, d_out, out, lse, q, k, v, *rest)
            return torch.ops.flash_ladder.attention_backward(d_out, out, lse, q, k, v, *rest)

        d_q, d_k, d_v, d_sink = (None,) * 4 if d_out is None else backward(d_out, out, v)
        if d_lse is not None and d_lse.numel() > 0:
            of_lse = _of_lse(d_lse, lse, out, v, sink, backward)
            d_q, d_k, d_sink = of_lse if d_out is None else (d_q + of_lse[0], d_k + of_lse[1], d_sink + of_lse[2])
        d_sink = d_sink.to(sink.dtype) if ctx.needs_input_grad[9] and d_sink is not None else None
        return (None, d_q, d_k, d_v, *(None,) * 5, d_sink, *(None,) * 16)


def _of_lse(d_lse, lse, out, v, sink, backward):
    """How much LSE changes with Q, K and sinks. dS gains P dLSE, so it is what another backward pass makes of a dP that is dLSE in each
    row: of a dO and a V that have dLSE and 1 in one column, and nothing else but what a 16-bit number leaves of dLSE, in the next one.
    Only where a loss depends on LSE."""
    d_lse = torch.where(lse.isfinite(), d_lse, 0)  # rows without keys have no weights
    most = d_lse.abs().amax().clamp(min=torch.finfo(torch.float32).tiny)  # f16 has few powers of two
    beside_rows = (d_lse / most).transpose(-1, -2)[..., None]
    rounded = beside_rows.to(out.dtype)
    columns = torch.cat((rounded, (beside_rows - rounded.float()).to(out.dtype)), -1)
    ones = torch.nn.functional.pad(torch.ones_like(v[..., :2]), (0, v.shape[-1] - 2)).contiguous()
    d_q, d_k, _, _ = backward(torch.nn.functional.pad(columns, (0, out.shape[-1] - 2)), torch.zeros_like(out), ones)
    d_q, d_k = ((most * each.float()).to(each.dtype) for each in (d_q, d_k))
    if sink is None:
        return d_q, d_k, d_lse.new_zeros(0)
    weights = torch.where(lse.isfinite(), (sink.float()[:, None] - lse).exp(), 0)
    of_rows = (d_lse * weights).sum(-1)
    return d_q, d_k, of_rows if of_rows.ndim == 1 else of_rows.sum(0)


operator(f"attention(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool return_lse=False, str? rung=None, {_PACKED}, {_INTERVALS}, {_BLOCKS}) -> (Tensor, Tensor)",
         _kernel, _fake, _autograd)  # fmt: skip


def _backward_kernel(
    d_out, out, lse, q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, cu_seqlens_q=None,
    cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0, deterministic=False, mask_first=None, mask_end=None, *blocks,
):  # fmt: skip
    packed = _packed_of(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, mask_first, mask_end, blocks)
    window = None if window is None else tuple(window)
    return _attention.gradients(d_out, out, lse, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed, deterministic)


def _backward_fake(
    d_out, out, lse, q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, *rest, **more,
):  # fmt: skip
    return (*(each.new_empty(each.shape) for each in (q, k, v)), empty_of_sink(q, sink))


def empty_of_sink(q, sink):
    """A gradient of sinks, [heads]; without any there is none."""
    return q.new_empty(0 if sink is None else q.shape[-2], dtype=torch.float32)


def _backward_autograd(keyset, *arguments):
    refuse_tangents(arguments)
    if torch.is_grad_enabled() and wants_gradients(*arguments):
        return _Backward.apply(keyset, *arguments)
    return below_autograd(torch.ops.flash_ladder.attention_backward.default, keyset, arguments)


class _Backward(torch.autograd.Function):
    """Gradients, of which there are none."""

    generate_vmap_rule = True

    @staticmethod
    def forward(keyset, *arguments):
        if keyset is None:
            return torch.ops.flash_ladder.attention_backward(*arguments)
        return below_autograd(torch.ops.flash_ladder.attention_backward.default, keyset, arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(f"Second derivatives: no rung has gradients of gradients.{WITHOUT}")


operator(f"attention_backward(Tensor d_out, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, {_OPTIONS}, {_PACKED}, {_INTERVALS}, {_BLOCKS}) -> (Tensor, Tensor, Tensor, Tensor)",
         _backward_kernel, _backward_fake, _backward_autograd)  # fmt: skip


# ---- FLOPs, as torch.utils.flop_counter.FlopCounterMode counts them: a mask saves none -------------------------------


def _products(q, k, cu_seqlens_q, cu_seqlens_k, longest_q, longest_k) -> int:
    """Multiplications and additions of one product of all rows of Q with all of K."""
    if cu_seqlens_q is None:
        batch, n, heads, d = q.shape
        return 2 * batch * heads * n * k.shape[1] * d
    try:
        pairs = sum(a * b for a, b in zip(*(each.diff().tolist() for each in (cu_seqlens_q, cu_seqlens_k))))
    except Exception:  # tensors without numbers
        pairs = (cu_seqlens_q.shape[0] - 1) * longest_q * longest_k
    return 2 * q.shape[1] * q.shape[2] * pairs


def _flops(q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, return_lse=False, rung=None, *packed,
           out_val=None, **more):  # fmt: skip
    return 2 * _products(q, k, *_lengths_of(packed, more))


def _backward_flops(d_out, out, lse, q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, *packed,
                    out_val=None, **more):  # fmt: skip
    return 5 * _products(q, k, *_lengths_of(packed, more))


def _lengths_of(packed: tuple, named: dict) -> tuple:
    names = "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"
    return tuple(packed[i] if i < len(packed) else named.get(name, None if i < 2 else 0) for i, name in enumerate(names))


def _count_flops() -> None:
    from torch.utils import flop_counter
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    for of, formula in ((torch.ops.flash_ladder.attention, _flops), (torch.ops.flash_ladder.attention_backward, _backward_flops)):
        flop_counter.register_flop_formula(of, get_raw=True)(formula)
        for mode in _get_current_dispatch_mode_stack():  # in which this module was loaded, by its first call
            counter = getattr(mode, "counter", None)
            if isinstance(counter, flop_counter.FlopCounterMode):
                counter.flop_registry[of] = flop_counter.flop_registry[of]


_count_flops()
