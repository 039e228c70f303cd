"""The functions of the package flash-attn, by their names, with their arguments' order and defaults."""

from __future__ import annotations

from ._attention import Packed, attend, attention


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):  # fmt: skip
    """attention() with flash-attn's arguments.

    Args:
        q: [batch, n_q, heads, d]; heads is a multiple of kv_heads.
        k: [batch, n_k, kv_heads, d].
        v: [batch, n_k, kv_heads, d].
        dropout_p: 0.
        softmax_scale: Of scores; None: 1 / sqrt(d).
        causal: The last query sees all keys.
        window_size: (left, right), how many keys before and behind its own a query sees; -1 is all.
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        alibi_slopes: [heads], of which each times the distance of query and key is taken from a score.
        deterministic: Gradients have the same bits in each run.
        return_attn_probs: Three are returned, as in flash-attn.

    Returns:
        The result, [batch, n_q, heads, d]; with return_attn_probs that, LSE as [batch, heads, n_q] in float32, and None, for no
        kernel keeps the probabilities.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: No kernel takes the problem, and why; or dropout_p is not 0.
    """
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
    """Sequences of several lengths in one call, one behind the other.

    On the emulator the numbers in cu_seqlens are looked at. In a GPU's memory they are not, for that would be a wait: they must
    be right.

    Args:
        q: [total_q, heads, d]; heads is a multiple of kv_heads.
        k: [total_k, kv_heads, d].
        v: [total_k, kv_heads, d].
        cu_seqlens_q: int32, [batch + 1]: a 0, and where each sequence of queries ends.
        cu_seqlens_k: int32, [batch + 1]: the same of keys.
        max_seqlen_q: What no sequence of queries is longer than.
        max_seqlen_k: What no sequence of keys is longer than.
        dropout_p: 0.
        softmax_scale: Of scores; None: 1 / sqrt(d).
        causal: The last query of a sequence sees all of its keys.
        window_size: (left, right), how many keys before and behind its own a query sees; -1 is all.
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        alibi_slopes: [heads], of which each times the distance of query and key is taken from a score.
        deterministic: Gradients have the same bits in each run.
        return_attn_probs: Three are returned, as in flash-attn.
        block_table: None.

    Returns:
        The result, [total_q, heads, d]; with return_attn_probs that, LSE as [heads, total_q] in float32, and None.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: No kernel takes the problem, and why; or dropout_p is not 0, or block_table not None.
    """
    _refuse(dropout_p)
    if block_table is not None:
        raise NotImplementedError("block_table: no rung takes keys in pages.\n  In one piece: flash_ladder.attention")
    result = attend(
        q, k, v, Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), causal=causal, scale=softmax_scale, window=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, return_lse=return_attn_probs, deterministic=deterministic,
    )  # fmt: skip
    return (*result, None) if return_attn_probs else result


def flash_attn_qkvpacked_func(qkv, *arguments, **options):
    """flash_attn_func() of one array, in which q, k and v of a token lie one behind the other. They are read where they lie.

    Args:
        qkv: [batch, n, 3, heads, d].
        *arguments: The other arguments of flash_attn_func(), from dropout_p on.
        **options: The same, by name.

    Returns:
        What flash_attn_func() does.

    Raises:
        ValueError: An array has another shape.
        TypeError: It is no array.
        NotImplementedError: As flash_attn_func().
    """
    return flash_attn_func(*_parts("qkv", qkv, 3, 5), *arguments, **options)


def flash_attn_kvpacked_func(q, kv, *arguments, **options):
    """flash_attn_func() with k and v in one array.

    Args:
        q: [batch, n_q, heads, d].
        kv: [batch, n_k, 2, kv_heads, d].
        *arguments: The other arguments of flash_attn_func(), from dropout_p on.
        **options: The same, by name.

    Returns:
        What flash_attn_func() does.

    Raises:
        ValueError: An array has another shape.
        TypeError: It is no array.
        NotImplementedError: As flash_attn_func().
    """
    return flash_attn_func(q, *_parts("kv", kv, 2, 5), *arguments, **options)


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, *arguments, **options):
    """flash_attn_varlen_func() of one array, where queries and keys have the same lengths.

    Args:
        qkv: [total, 3, heads, d].
        cu_seqlens: int32, [batch + 1]: a 0, and where each sequence ends.
        max_seqlen: What no sequence is longer than.
        *arguments: The other arguments of flash_attn_varlen_func(), from dropout_p on.
        **options: The same, by name.

    Returns:
        What flash_attn_varlen_func() does.

    Raises:
        ValueError: An array has another shape.
        TypeError: It is no array.
        NotImplementedError: As flash_attn_varlen_func().
    """
    return flash_attn_varlen_func(*_parts("qkv", qkv, 3, 4), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, *arguments, **options)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *arguments, **options):
    """flash_attn_varlen_func() with k and v in one array.

    Args:
        q: [total_q, heads, d].
        kv: [total_k, 2, kv_heads, d].
        cu_seqlens_q: int32, [batch + 1]: a 0, and where each sequence of queries ends.
        cu_seqlens_k: int32, [batch + 1]: the same of keys.
        max_seqlen_q: What no sequence of queries is longer than.
        max_seqlen_k: What no sequence of keys is longer than.
        *arguments: The other arguments of flash_attn_varlen_func(), from dropout_p on.
        **options: The same, by name.

    Returns:
        What flash_attn_varlen_func() does.

    Raises:
        ValueError: An array has another shape.
        TypeError: It is no array.
        NotImplementedError: As flash_attn_varlen_func().
    """
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
