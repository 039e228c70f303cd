"""PyTorch: the operator that torch.compile sees, and what tensors have that other arrays have not."""

from __future__ import annotations

import warnings
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from . import _attention, _native

WITHOUT = "\n  For inference: with torch.no_grad(). Gradients: torch.nn.functional.scaled_dot_product_attention"
_PLAIN = (Tensor, torch.nn.Parameter)
_said_it_is_slow = False


def attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if torch.is_grad_enabled() and wants_gradients(q, k, v, alibi_slopes, sink, out):
        return _with_gradients(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic)
    if not torch.compiler.is_compiling() and type(q) in _PLAIN:
        if not _said_it_is_slow:
            _say_that_it_is_slow(q)
        return _run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
    # A graph, or a tensor of another kind: of these the operator takes care, at some microseconds more.
    result, lse = torch.ops.flash_ladder.attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, rung, *(packed or ()))
    if out is not None:
        result = out.copy_(result)
    return (result, lse) if return_lse else result


def _run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed):
    """As _attention.run(); but on a GPU, a call like an earlier one goes through PyTorch's functions for C."""
    if alibi_slopes is not None or sink is not None or packed is not None:
        return _attention.run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
    options = None
    try:
        options = causal, type(causal), scale, type(scale), window, softcap, type(softcap), return_lse, rung
        calls = _calls.get(options)
        is_plain = (
            type(k) is type(v) is Tensor and not (q.is_neg() or k.is_neg() or v.is_neg())
            and (out is None or (type(out) is Tensor and not out.is_neg()))
        )  # fmt: skip
        if calls is not None and is_plain:
            lse = None
            if out is not None:
                result = out
            elif q.is_contiguous():
                result = torch.empty_like(q)
            else:
                result = torch.empty_like(q, memory_format=torch.contiguous_format)
            if return_lse:
                batch, n, heads, _ = q.shape
                lse = torch.empty((batch, heads, n), dtype=torch.float32, device=q.device)
            if _native.call_again(calls.made, q, k, v, result, lse) == 0:
                return (result, lse) if return_lse else result
    except Exception:  # something is not what it should be, and below it is said what
        pass
    result, lse, ready = _attention.run_and_tell(q, k, v, causal, scale, window, softcap, None, None, return_lse, out, rung, None)
    on_gpu = ready is not None and ready.plan.device != _native.EMULATOR
    if on_gpu and not ready.plan.workspace_bytes and is_plain and _exchange_api is not None:
        tensors = [q, k, v, result] + [lse] * (lse is not None)
        if options not in _calls and len(_calls) < MOST_OPTIONS:
            _calls[options] = _native.Calls(_exchange_api, len(tensors))
        if options in _calls:
            _calls[options].add(ready.plan, ready.layouts, tensors)
    return (result, lse) if return_lse else result


_calls: dict[tuple, _native.Calls] = {}  # of options; they stay
_exchange_api = _native.exchange_api_of(Tensor)
MOST_OPTIONS = 64


def wants_gradients(*tensors) -> bool:
    for each in tensors:
        if isinstance(each, Tensor) and each.requires_grad:
            return True
    return False


def _with_gradients(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if out is not None or wants_gradients(alibi_slopes, sink):
        raise NotImplementedError(f"{'Into out' if out is not None else 'Of alibi_slopes and of sink'} there are no gradients.{WITHOUT}")
    arguments = q, k, v, causal, scale, window, softcap, alibi_slopes, sink
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if not torch.compiler.is_compiling():  # a graph is told when it runs
        try:
            _attention.check_gradients(*arguments, rung, packed, deterministic)
        except NotImplementedError as reason:
            any_order = "\n  In any order: deterministic=False, without torch.use_deterministic_algorithms(True)" if deterministic else ""
            raise NotImplementedError(f"A tensor asks for gradients. {reason}{any_order}{WITHOUT}") from None
    result, lse = torch.ops.flash_ladder.attention(*arguments, True, rung, *(packed or (None, None, 0, 0)), deterministic)
    return (result, lse) if return_lse else result


def _say_that_it_is_slow(q: Tensor) -> None:
    global _said_it_is_slow
    if not _said_it_is_slow and q.device.type == "cpu":
        _said_it_is_slow = True
        warnings.warn(
            "flash_ladder: these tensors lie on the CPU, so the GPU's kernel is emulated, instruction by instruction: a tiny model "
            "takes seconds, a large one hours. On an NVIDIA GPU: .to('cuda'). (Said once.)",
            stacklevel=4,
        )


@torch.library.custom_op("flash_ladder::attention", mutates_args=(), device_types=("cpu", "cuda"))
def _operator(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: Optional[float] = None,
    window: Optional[List[int]] = None, softcap: float = 0.0, alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None, return_lse: bool = False, rung: Optional[str] = None, cu_seqlens_q: Optional[Tensor] = None,
    cu_seqlens_k: Optional[Tensor] = None, max_seqlen_q: int = 0, max_seqlen_k: int = 0, deterministic: bool = False,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    _say_that_it_is_slow(q)
    packed = None if cu_seqlens_q is None else _attention.Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    window = None if window is None else tuple(window)
    result = _run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, None, rung, packed)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


@_operator.register_fake
def _(q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, return_lse=False,
      rung=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0, deterministic=False):  # fmt: skip
    *batch, n, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((*batch, heads, n) if return_lse else (0,), dtype=torch.float32)


@torch.library.custom_op("flash_ladder::attention_backward", mutates_args=(), device_types=("cpu", "cuda"))
def _backward_operator(
    d_out: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: Optional[float],
    window: Optional[List[int]], softcap: float, alibi_slopes: Optional[Tensor], sink: Optional[Tensor],
    cu_seqlens_q: Optional[Tensor], cu_seqlens_k: Optional[Tensor], max_seqlen_q: int, max_seqlen_k: int, deterministic: bool,
) -> Tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    packed = None if cu_seqlens_q is None else _attention.Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _attention.gradients(d_out, out, lse, q, k, v, causal, scale, window, softcap, alibi_slopes, sink, packed, deterministic)


@_backward_operator.register_fake
def _(d_out, out, lse, q, k, v, *rest):
    return tuple(each.new_empty(each.shape) for each in (q, k, v))


def _set_up(ctx, inputs, output):
    q, k, v, causal, scale, window, softcap, alibi_slopes, sink, _, _, cu_seqlens_q, cu_seqlens_k, *rest = inputs
    ctx.save_for_backward(q, k, v, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, *output)
    ctx.options, ctx.rest = (causal, scale, window, softcap), rest  # longest, and deterministic
    ctx.set_materialize_grads(False)


def _backward(ctx, d_out, d_lse):
    q, k, v, alibi_slopes, sink, cu_seqlens_q, cu_seqlens_k, out, lse = ctx.saved_tensors
    if d_lse is not None:
        raise NotImplementedError(f"A loss depends on LSE, and no rung has gradients of that.{WITHOUT}")
    if any(ctx.needs_input_grad[7:9]):
        raise NotImplementedError(f"Of alibi_slopes and of sink there are no gradients.{WITHOUT}")
    if lse.numel() == 0 and out.numel() > 0:
        raise NotImplementedError("Gradients need LSE: return_lse=True, or flash_ladder.attention, which sees to that.")
    gradients = (None, None, None)
    if d_out is not None:
        gradients = torch.ops.flash_ladder.attention_backward(d_out, out, lse, q, k, v, *ctx.options, alibi_slopes, sink,
                                                              cu_seqlens_q, cu_seqlens_k, *ctx.rest)  # fmt: skip
    return (*gradients, *(None,) * 13)


_operator.register_autograd(_backward, setup_context=_set_up)
