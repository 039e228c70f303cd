"""The functions of the package flash-attn, by their names, with their arguments' order and defaults."""

from __future__ import annotations

from ._attention import Packed, attend, attention


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):  # fmt: skip
    """attention() with flash-attn's arguments. With return_attn_probs: the result, LSE, and None, for no kernel keeps the
    probabilities."""
    _refuse(dropout_p)
    result = attention(
        q, k, v, causal=causal, scale=softmax_scale, window=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        return_lse=return_attn_probs, deterministic=deterministic,
    )  # fmt: skip
    return (*result, None) if return_attn_probs else result


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None,
):  # fmt: skip
    """Sequences of several lengths in one call: q is [total_q, heads, d], k and v are [total_k, kv_heads, d], one sequence behind the
    other. cu_seqlens_q and cu_seqlens_k: int32, [batch + 1], a 0 and where each sequence ends; max_seqlen_q and max_seqlen_k: what no
    sequence is longer than. On the emulator the numbers in cu_seqlens are looked at. In a GPU's memory they are not, for that would be a
    wait: they must be right. With return_attn_probs: the result, LSE as [heads, total_q], and None."""
    _refuse(dropout_p)
    if block_table is not None:
        raise NotImplementedError("block_table: no rung takes keys in pages.\n  In one piece: flash_ladder.attention")
    result = attend(
        q, k, v, Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), causal=causal, scale=softmax_scale, window=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, return_lse=return_attn_probs, deterministic=deterministic,
    )  # fmt: skip
    return (*result, None) if return_attn_probs else result


def flash_attn_qkvpacked_func(qkv, *arguments, **options):
    """flash_attn_func() of one array [batch, n, 3, heads, d]: q, k and v of a token lie one behind the other, and are read where they lie.
    The other arguments are those of flash_attn_func() from dropout_p on."""
    return flash_attn_func(*_parts("qkv", qkv, 3, 5), *arguments, **options)


def flash_attn_kvpacked_func(q, kv, *arguments, **options):
    """flash_attn_func() with k and v in one array [batch, n, 2, kv_heads, d]."""
    return flash_attn_func(q, *_parts("kv", kv, 2, 5), *arguments, **options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *arguments, **options):
    """flash_attn_varlen_func() of one array [total, 3, heads, d], where queries and keys have the same lengths."""
    return flash_attn_varlen_func(*_parts("qkv", qkv, 3, 4), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *arguments, **options):
    """flash_attn_varlen_func() with k and v in one array [total_k, 2, kv_heads, d]."""
    return flash_attn_varlen_func(q, *_parts("kv", kv, 2, 4), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *arguments, **options)


def _parts(name: str, packed, count: int, rank: int) -> list:
    """Views of what lies in the third dimension from behind."""
    shape = getattr(packed, "shape", None)
    if shape is None:
        raise TypeError(f"{name} is a {type(packed).__name__}, and no array.")
    if len(shape) != rank or shape[-3] != count:
        head = "batch, n" if rank == 5 else "total"
        raise ValueError(f"{name} is {list(shape)}.\n  It must be [{head}, {count}, heads, d]: {', '.join(name)} of each token")
    return [packed[..., part, :, :] for part in range(count)]


def _refuse(dropout_p) -> None:
    if dropout_p:
        raise NotImplementedError(f"dropout_p is {dropout_p}; no rung drops anything.\n  Without: 0.0")
