"""Models of transformers: after register(), attn_implementation="ladder" is one of the ways to attend."""

from __future__ import annotations

from typing import Optional

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from ._attention import attention

# transformers looks for every name that has "flash" in it on its hub of kernels.
NAME = "ladder"


def register() -> None:
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, mask)


def mask(batch_size, q_length, kv_length, q_offset=0, kv_offset=0, attention_mask=None, device=None, **others):
    """None where all keys are there, else [batch, keys so far]: causal masks and windows are the kernel's."""
    so_far = q_offset + q_length - kv_offset
    if attention_mask is None and so_far < kv_length:  # a cache of fixed size, which is not full
        return torch.ones(batch_size, so_far, dtype=torch.bool, device=device)
    return flash_attention_mask(batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask=attention_mask, **others)


def attend(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: Optional[torch.Tensor], dropout: float = 0.0, scaling: Optional[float] = None,
    sliding_window: Optional[int] = None, softcap: Optional[float] = None, is_causal: Optional[bool] = None,
    s_aux: Optional[torch.Tensor] = None, **others,
):  # fmt: skip
    """One layer. Q, K, V: [batch, heads, n, d]; the result is [batch, n, heads, d]."""
    if dropout:
        raise NotImplementedError(f"dropout is {dropout}; no rung drops anything.\n  For inference: model.eval()")
    for name in ("position_bias", "block_table", "cu_seq_lens_q", "cu_seq_lens_k"):
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}: no rung takes it.\n  For this model: attn_implementation='sdpa'")
    causal = module.is_causal if is_causal is None else is_causal
    options = dict(
        causal=causal, scale=scaling, softcap=softcap or 0.0, sink=s_aux,
        window=(sliding_window - 1, 0 if causal else sliding_window - 1) if sliding_window else None,
    )  # fmt: skip
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    if attention_mask is None:
        _refuse_packed(others.get("position_ids"))
        return attention(q, k, v, **options), None
    # Padding, left or right: each sequence by itself, from its first token to its last. A padded query has the result 0.
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    n_q, n_k = q.shape[1], attention_mask.shape[1]  # a cache may have room for more
    for sequence, is_there in enumerate(attention_mask.bool().cpu()):
        places = is_there.nonzero().flatten().tolist()
        if not places:
            continue
        first, end = places[0], places[-1] + 1
        if end - first != len(places):
            raise NotImplementedError("The mask has gaps within a sequence; no rung takes that.\n  Padding: left or right of it")
        of_q = slice(max(0, first - (n_k - n_q)), max(0, end - (n_k - n_q)))
        here = slice(sequence, sequence + 1)
        if of_q.start < of_q.stop:
            out[here, of_q] = attention(q[here, of_q], k[here, first:end], v[here, first:end], **options)
    return out, None


def _refuse_packed(positions: Optional[torch.Tensor]) -> None:
    """Several sequences in one row have positions that begin anew, and no mask."""
    if positions is None or positions.shape[0] > 1 or positions.shape[-1] < 2 or torch.compiler.is_compiling():
        return
    if (positions.diff() != 1).any():
        raise NotImplementedError("Several sequences are packed into one row; no rung parts them.\n  A row for each, padded")
