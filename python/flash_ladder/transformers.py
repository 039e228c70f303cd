"""Models of transformers: after register(), attn_implementation="ladder" is one of the ways to attend."""

from __future__ import annotations

from typing import Optional

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import flash_attention_mask

from ._attention import Packed, attention
from ._attention import attend as attend_packed

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
    for name in ("position_bias", "block_table"):
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}: no rung takes it.\n  For this model: attn_implementation='sdpa'")
    causal = module.is_causal if is_causal is None else is_causal
    options = dict(
        causal=causal, scale=scaling, softcap=softcap or 0.0, sink=s_aux,
        window=(sliding_window - 1, 0 if causal else sliding_window - 1) if sliding_window else None,
    )  # fmt: skip
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    if attention_mask is not None:
        return _attend_padded(q, k, v, attention_mask, options), None
    packed = _several_in_one_row(q, k, others)
    if packed is not None:
        return attend_packed(q[0], k[0], v[0], packed, **options)[None], None
    return attention(q, k, v, **options), None


# ---- padding, left or right of each sequence -----------------------------------------------------------------------


def _attend_padded(q, k, v, mask, options: dict) -> torch.Tensor:
    """The result of a padded query is 0."""
    if not torch.compiler.is_compiling():
        _once(mask, _refuse_gaps)
    k_rows, v_rows, step = _as_rows(k, v)
    try:
        packed = _once(mask, _lengths_of_mask, q.shape[1], step, len(k_rows))
        return attend_packed(q.reshape(-1, *q.shape[2:]), k_rows, v_rows, packed, **options).view(q.shape)
    except NotImplementedError:  # by no rung in one call
        return _attend_one_by_one(q, k, v, mask, options)


def _as_rows(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Both as [rows, heads, d], and how many rows it is from a sequence's first one to the next sequence's. A cache lies as [batch, heads,
    n, d]: there these rows overlap, and nothing is copied."""
    batch, row = k.stride()[:2]
    if torch.compiler.is_compiling() or k.stride() != v.stride() or row == 0 or batch % row:
        return k.flatten(0, 1), v.flatten(0, 1), k.shape[1]  # copies, mostly
    step = batch // row
    size = ((k.shape[0] - 1) * step + k.shape[1], *k.shape[2:])
    return k.as_strided(size, k.stride()[1:]), v.as_strided(size, v.stride()[1:]), step


def _lengths_of_mask(mask: torch.Tensor, n_q: int, step: int, k_rows: int) -> Packed:
    """What is padding belongs to sequences that have no queries, or no keys. Nobody waits for the mask's numbers."""
    batch, n_k = mask.shape
    there = mask.bool()
    first = there.int().argmax(1)
    end = first + there.sum(1)
    q_first, q_end = ((each - (n_k - n_q)).clamp(0) for each in (first, end))
    q_here, k_here = (rows * torch.arange(batch, device=mask.device) for rows in (n_q, step))  # a sequence's first rows
    # Padding in K; in Q, before; the sequence itself; padding in Q, behind.
    ends_q = torch.stack([q_here, q_here + q_first, q_here + q_end, q_here + n_q], 1)
    ends_k = torch.stack([k_here + first, k_here + first, k_here + end, k_here + end], 1)
    all_q, all_k = (F.pad(F.pad(ends.flatten(), (1, 0)), (0, 1), value=rows).int() for ends, rows in ((ends_q, batch * n_q), (ends_k, k_rows)))
    return Packed(all_q, all_k, n_q, max(step, k_rows))


def _attend_one_by_one(q, k, v, mask, options: dict) -> torch.Tensor:
    out = torch.zeros_like(q, memory_format=torch.contiguous_format)
    n_q, n_k = q.shape[1], mask.shape[1]  # a cache may have room for more
    for sequence, is_there in enumerate(mask.bool().cpu()):
        places = is_there.nonzero().flatten().tolist()
        if not places:
            continue
        first, end = places[0], places[-1] + 1
        of_q = slice(max(0, first - (n_k - n_q)), max(0, end - (n_k - n_q)))
        here = slice(sequence, sequence + 1)
        if of_q.start < of_q.stop:
            out[here, of_q] = attention(q[here, of_q], k[here, first:end], v[here, first:end], **options)
    return out


def _refuse_gaps(mask: torch.Tensor) -> None:
    if (mask.bool().diff(dim=1).sum(1) > 1 + ~mask[:, 0].bool()).any():  # it may begin, and it may end
        raise NotImplementedError("The mask has gaps within a sequence; no rung takes that.\n  Padding: left or right of it")


# ---- several sequences in one row, without a mask ------------------------------------------------------------------


def _several_in_one_row(q: torch.Tensor, k: torch.Tensor, others: dict) -> Optional[Packed]:
    """Their lengths are told, or positions begin anew."""
    ends_q, ends_k = (others.get(f"cu_seq_lens_{of}") for of in "qk")
    if ends_q is not None and ends_k is not None:
        return Packed(ends_q, ends_k, others.get("max_length_q") or q.shape[1], others.get("max_length_k") or k.shape[1])
    positions = others.get("position_ids")
    if positions is None or positions.shape[0] > 1 or positions.shape[-1] < 2 or torch.compiler.is_compiling():
        return None
    return _once(positions, _lengths_of_positions)


def _lengths_of_positions(positions: torch.Tensor) -> Optional[Packed]:
    positions = positions.flatten()
    anew = positions[1:] != positions[:-1] + 1
    if not anew.any():
        return None
    if positions[0] != 0 or (positions[1:][anew] != 0).any():
        raise NotImplementedError("Positions jump within a row; no rung takes that.\n  A row for each sequence, padded")
    n = len(positions)
    ends = F.pad(F.pad(anew.nonzero().flatten() + 1, (1, 0)), (0, 1), value=n).int()
    return Packed(ends, ends, n, n)


# What was said of a tensor: a mask is the same one in all layers of a model.
_said = WeakTensorKeyDictionary()


def _once(tensor: torch.Tensor, say, *arguments):
    if torch.compiler.is_compiling():
        return say(tensor, *arguments)
    said = _said.setdefault(tensor, {})
    key = (say, tensor._version, *arguments)
    if key not in said:
        said[key] = say(tensor, *arguments)
    return said[key]
