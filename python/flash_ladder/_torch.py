"""PyTorch: the operator that torch.compile sees, and what tensors have that other arrays have not."""

from __future__ import annotations

import warnings
from typing import List, Optional, Tuple

import torch
from torch import Tensor

from . import _attention

NO_GRADIENTS = (
    "flash_ladder has no gradients yet, and a tensor asks for them.\n"
    "  For inference: with torch.no_grad(). Gradients: torch.nn.functional.scaled_dot_product_attention"
)
_PLAIN = (Tensor, torch.nn.Parameter)
_said_it_is_slow = False


def attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed):
    if torch.is_grad_enabled():
        for each in (q, k, v, alibi_slopes, sink, out):
            if isinstance(each, Tensor) and each.requires_grad:
                raise NotImplementedError(NO_GRADIENTS)
    if not torch.compiler.is_compiling() and type(q) in _PLAIN:
        if not _said_it_is_slow:
            _say_that_it_is_slow(q)
        return _attention.run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed)
    # A graph, or a tensor of another kind: of these the operator takes care, at some microseconds more.
    result, lse = torch.ops.flash_ladder.attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, rung, *(packed or ()))
    if out is not None:
        result = out.copy_(result)
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
    cu_seqlens_k: Optional[Tensor] = None, max_seqlen_q: int = 0, max_seqlen_k: int = 0,
) -> Tuple[Tensor, Tensor]:  # fmt: skip
    _say_that_it_is_slow(q)
    packed = None if cu_seqlens_q is None else _attention.Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    result = _attention.run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, None, rung, packed)
    return result if return_lse else (result, q.new_empty(0, dtype=torch.float32))


@_operator.register_fake
def _(q, k, v, causal=False, scale=None, window=None, softcap=0.0, alibi_slopes=None, sink=None, return_lse=False,
      rung=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=0, max_seqlen_k=0):  # fmt: skip
    *batch, n, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((*batch, heads, n) if return_lse else (0,), dtype=torch.float32)


def _backward(ctx, *gradients):
    raise NotImplementedError(NO_GRADIENTS)


_operator.register_autograd(_backward)
