"""The functions of the package flash-attn, by their names, with their arguments' order and defaults."""

from __future__ import annotations

from ._arrays import is_of_jax, is_of_torch, is_of_torch_graph, library_of
from ._attention import Call, Packed, attend, attention


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
    block_table=None, *, seqused_k=None, leftpad_k=None, sink=None,
):  # fmt: skip
    """Sequences of several lengths in one call, one behind the other.

    On the emulator the numbers in cu_seqlens are looked at, and those of seqused_k and leftpad_k. In a GPU's memory they are not, for
    that would be a wait: they must be right.

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
        seqused_k: int32, [batch]: how many of a sequence's keys are there; None: all. What lies behind them may be
            anything.
        leftpad_k: int32, [batch]: where in a sequence its keys begin; None: at 0. seqused_k counts those before, too.
        sink: [heads], the score of a key that has no value.

    Returns:
        The result, [total_q, heads, d]; with return_attn_probs that, LSE as [heads, total_q] in float32, and None.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: No kernel takes the problem, and why; or dropout_p is not 0, or block_table not None.
    """
    _refuse(dropout_p)
    if block_table is not None:
        raise NotImplementedError("block_table: no rung reads pages for queries of several lengths that lie one behind the other.\n"
                                  "  Queries as [batch, n, heads, d]: flash_ladder.flash_attn_with_kvcache")  # fmt: skip
    if (seqused_k is not None or leftpad_k is not None) and not is_of_jax(q):  # for which no rung takes several lengths
        cu_seqlens_q, cu_seqlens_k = _around(q, cu_seqlens_q, cu_seqlens_k, leftpad_k, seqused_k)
    result = attend(
        q, k, v, Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k), causal=causal, scale=softmax_scale, window=window_size,
        softcap=softcap, alibi_slopes=alibi_slopes, sink=sink, return_lse=return_attn_probs, deterministic=deterministic,
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


def _around(q, cu_seqlens_q, cu_seqlens_k, leftpad_k, seqused_k) -> tuple:
    """Keys that nobody uses become sequences of their own, which have no queries. So nothing is copied but the ends of sequences."""
    arrays = library_of(q)
    given = {name: each for name, each in (("leftpad_k", leftpad_k), ("seqused_k", seqused_k)) if each is not None}
    for name, values in {"cu_seqlens_q": cu_seqlens_q, "cu_seqlens_k": cu_seqlens_k, **given}.items():
        Call._refuse_another_kind(arrays, name, values, q)
        if str(values.dtype).rpartition(".")[2] != "int32":
            raise TypeError(f"{name} is {values.dtype}; the kernel reads int32.")
        if len(values.shape) != 1 or (name in given and values.shape[0] != cu_seqlens_k.shape[0] - 1):
            form = f"[batch], here [{cu_seqlens_k.shape[0] - 1}]" if name in given else "[batch + 1]: a 0, and where each sequence ends"
            raise ValueError(f"{name} has the shape {list(values.shape)}; it must be {form}.")
        if (device := getattr(values, "device", None)) != (other := getattr(cu_seqlens_k, "device", None)):
            raise ValueError(f"The arrays lie on different devices: {name} on {device}, cu_seqlens_k on {other}.")
    batch = int(cu_seqlens_k.shape[0]) - 1
    if batch < 0 or cu_seqlens_q.shape[0] != batch + 1:
        return cu_seqlens_q, cu_seqlens_k  # which is said where they are looked at
    if all(map(_has_numbers_here, given.values())):
        ends = cu_seqlens_k.tolist()
        lengths = [end - begin for begin, end in zip(ends, ends[1:])]
        padding = [0] * batch if leftpad_k is None else leftpad_k.tolist()
        used = lengths if seqused_k is None else seqused_k.tolist()
        for sequence, (first, end, length) in enumerate(zip(padding, used, lengths)):
            if not 0 <= first <= end <= length:
                raise ValueError(f"Sequence {sequence} has {length} keys; by {' and '.join(given)} it uses those from {first} on and before {end}.")
    q_begins, q_ends, k_begins = cu_seqlens_q[:-1], cu_seqlens_q[1:], cu_seqlens_k[:-1]
    of_q = [q_begins, *([q_begins] if leftpad_k is not None else []), *([q_ends] if seqused_k is not None else [])]
    of_k = [k_begins, *(k_begins + each for each in given.values())]
    return _in_turns(arrays, of_q, cu_seqlens_q), _in_turns(arrays, of_k, cu_seqlens_k)


def _in_turns(arrays, columns: list, ends):
    """A number of each, then the next of each; and in the end where all sequences end."""
    made = arrays.empty((len(columns) * (int(ends.shape[0]) - 1) + 1,), ends, "int32")
    for at, values in enumerate(columns):
        arrays.copy(made[at : -1 : len(columns)], values)
    arrays.copy(made[-1:], ends[-1:])
    return made


def _has_numbers_here(values) -> bool:
    """In host memory, and nothing of PyTorch's stands before them."""
    if not is_of_torch(values):
        return type(values).__module__.partition(".")[0] == "numpy"
    from . import _torch

    return not (is_of_torch_graph() or _torch._anyone_listens()) and _torch._are_plain(values) and values.device.type == "cpu"


def _refuse(dropout_p) -> None:
    if dropout_p:
        raise NotImplementedError(f"dropout_p is {dropout_p}; no rung drops anything.\n  Without: 0.0")
