"""flash_attn_with_kvcache(): new tokens go into a cache, and their queries see all that is there."""

from __future__ import annotations

from . import _attention, _native
from ._arrays import is_of_jax, is_of_torch, library_of

SAME_IN_ANY_BATCH = "d11_thrift"  # its shares have lengths of their own
_BEFORE = {"rotary_cos": "q and k turned", "rotary_sin": "q and k turned", "cache_leftpad": "keys that begin at 0"}


def flash_attn_with_kvcache(
    q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, cache_batch_idx=None,
    cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
    rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False, k_descale=None, v_descale=None,
    k_new_descale=None, v_new_descale=None,
):  # fmt: skip
    """Attention of a few new queries of each sequence over its cache, which first takes their keys and values, in place.

    On a GPU nobody waits, and lengths are not looked at: kernels take no more keys than there is room for, and new tokens for which
    there is none are dropped. The pages of a table must be there. Rows of the cache behind a sequence's last key, and table entries behind its last page, may hold anything.

    Args:
        q: [batch, n_q, heads, d]; heads is a multiple of kv_heads.
        k_cache: [batch, room, kv_heads, d]; with block_table in pages, [pages, page size, kv_heads, d].
        v_cache: As k_cache.
        k: New keys, [batch, n_new, kv_heads, d], or None.
        v: New values, as k.
        rotary_cos: None.
        rotary_sin: None.
        cache_seqlens: int32 [batch], or a number for all: the keys that are there before the call; None: all that there is room
            for.
        cache_batch_idx: int32 [batch], which row of the cache is a sequence's.
        cache_leftpad: None.
        block_table: int32 [batch, most pages of a sequence]. Several sequences may share a page.
        softmax_scale: Of scores; None: 1 / sqrt(d).
        causal: The last query sees all keys, new ones too.
        window_size: (left, right), how many keys before and behind its own a query sees; -1 is all.
        softcap: Scores become softcap * tanh(score / softcap); 0: they stay.
        rotary_interleaved: Says nothing without rotary_cos.
        alibi_slopes: [heads], of which each times the distance of query and key is taken from a score.
        num_splits: 1 where a sequence must have the same bits alone and in any batch; that takes longer, and one rung has it,
            d11_thrift. Another number says nothing: the kernel shares keys out by itself.
        return_softmax_lse: LSE is returned as well.
        k_descale: Of a cache in float8_e4m3fn or int8, float32, none below 0: what its keys are multiplied by; None: 1. Per head [batch,
            kv_heads], per channel [batch, kv_heads, d], or per token as the cache is, without d. quantize_kv makes such caches. New keys are of
            the cache's type, and quantised with the same scale, where it is not per token. A cache of four bits, which is uint8 [batch, room,
            kv_heads, d / 2], has a scale per token.
        v_descale: Of values, as k_descale, and of the same shape.
        k_new_descale: Per token, what new keys are multiplied by: float32 [batch, n_new, kv_heads]. It goes into k_descale, in place.
        v_new_descale: Of new values, as k_new_descale.

    Returns:
        The result, [batch, n_q, heads, d]; with return_softmax_lse a pair of it and LSE, [batch, heads, n_q] in float32.

    Raises:
        ValueError: The arrays do not fit together; on the emulator also: there is no room for new keys.
        TypeError: Something is of the wrong type, or of JAX, whose arrays never change.
        NotImplementedError: No kernel takes the problem, and why; or what is None above is something else.
    """
    if not (rotary_cos is None and rotary_sin is None and cache_leftpad is None):
        _refuse(rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_leftpad=cache_leftpad)
    rung = SAME_IN_ANY_BATCH if num_splits == 1 else None
    of_bytes = k_descale is not None or v_descale is not None or str(getattr(k_cache, "dtype", "")).rpartition(".")[2] in _attention.BYTES
    if (again := _attention.short_ways.get(type(q))) is not None and cache_batch_idx is None and not of_bytes:
        new = () if k is None and v is None else (k, v)
        beside = (cache_seqlens, *new) if block_table is None else (cache_seqlens, block_table, *new)
        found = again(q, k_cache, v_cache, causal, softmax_scale, window_size, softcap, alibi_slopes, None, return_softmax_lse, None, rung,
                      _attention.Cache.kind_of(block_table, new), beside, new != ())  # fmt: skip
        if found is not None:
            return found
    if is_of_jax(q):
        raise TypeError("q is of JAX, whose arrays never change, and a cache is written in place.\n  The same without new keys: flash_ladder.attention")
    arrays = library_of(q)
    way = _attention.run
    if is_of_torch(q):
        from ._torch import attend_cache as way, refuse_around_a_cache

        refuse_around_a_cache(q, k_cache, v_cache, k, v, cache_seqlens, block_table, alibi_slopes, k_descale, v_descale, k_new_descale, v_new_descale)
    for name, array in (("k_cache", k_cache), ("v_cache", v_cache)):
        _attention.Call._refuse_another_kind(arrays, name, array, q)
        if len(array.shape) != 4 or len(q.shape) != 4:
            raise ValueError(f"{name} has the shape {list(array.shape)}, and q {list(q.shape)}; they must be [batch, n, heads, d].")
    batch, room = int(q.shape[0]), int(k_cache.shape[1])
    if cache_batch_idx is not None:
        if block_table is not None:
            raise ValueError("cache_batch_idx and block_table both say where a sequence's keys are: one of them.")
        _attention.Call._refuse_another_kind(arrays, "cache_batch_idx", cache_batch_idx, q)
        if len(cache_batch_idx.shape) != 1:
            raise ValueError(f"cache_batch_idx has the shape {list(cache_batch_idx.shape)}; it must be [batch].")
        block_table = cache_batch_idx[:, None]  # a page of each sequence, as long as all its room
    elif block_table is not None:
        room *= int(block_table.shape[1]) if len(getattr(block_table, "shape", ())) == 2 else 0
    if cache_seqlens is None or (number := _attention.whole_number(cache_seqlens)) is not None:
        number = room if cache_seqlens is None else number
        if not 0 <= number <= room:
            raise ValueError(f"cache_seqlens is {number}; the cache has room for {room} keys of a sequence.")
        cache_seqlens = arrays.full((batch,), number, q, "int32")
    cache = _attention.Cache(*(_in_one_piece(arrays, each) for each in (cache_seqlens, block_table)))
    if of_bytes:
        if str(k_cache.dtype).rpartition(".")[2] == "uint8" and (k_descale is None or v_descale is None):
            raise ValueError("A cache of four bits comes with k_descale and v_descale, a scale of each key and each value.")
        if (k_descale is None) != (v_descale is None) and max(len(getattr(each, "shape", ())) for each in (k_descale, v_descale)) == 3:
            raise ValueError("Scales per token or per channel are of both: k_descale and v_descale.")
        ones = arrays.full((batch, int(k_cache.shape[2])), 1, q, "float32") if k_descale is None or v_descale is None else None
        cache = cache._replace(scales=tuple(ones if each is None else each for each in (k_descale, v_descale)))
    options = causal, softmax_scale, window_size, softcap, alibi_slopes, None
    if (k is None) != (v is None):
        raise ValueError("New keys come with new values: k and v, or neither.")
    new_scales = (k_new_descale, v_new_descale)
    of_tokens = of_bytes and (str(k_cache.dtype).rpartition(".")[2] == "uint8" or tuple(getattr(k_descale, "shape", ())) == tuple(k_cache.shape[:3]))
    if (of_tokens and k is not None) != all(each is not None for each in new_scales) or (new_scales[0] is None) != (new_scales[1] is None):
        raise ValueError("k_new_descale and v_new_descale come with new keys and values for a cache with scales per token, and these with both.")
    if k is not None:
        cache = _append(arrays, q, k_cache, v_cache, k, v, cache._replace(new_scales=new_scales if of_tokens else ()), options)
    return way(q, k_cache, v_cache, *options[:5], None, return_softmax_lse, None, rung, cache)


def attend_bytes(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, k_descale, v_descale):
    """attention() of keys and values of a byte, which are a cache that is full."""
    if k_descale is None or v_descale is None:
        raise ValueError("k_descale comes with v_descale: both or neither.")
    if intervals is not None:
        raise NotImplementedError("mask_intervals beside k_descale: no rung has both.\n  The same without one of them")
    if is_of_jax(q):
        raise TypeError("q is of JAX, for which no rung reads bytes.\n  PyTorch, NumPy and CuPy have such arrays")
    arrays = library_of(q)
    way = _attention.run
    if is_of_torch(q):
        from ._torch import attend_cache as way, refuse_around_a_cache

        refuse_around_a_cache(q, k, v, alibi_slopes, sink, out, k_descale, v_descale)
    for name, array in (("q", q), ("k", k)):
        _attention.Call._refuse_another_kind(arrays, name, array, q)
        if len(array.shape) != 4:
            raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [batch, n, heads, d].")
    return way(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, full_cache(arrays, q, k, (k_descale, v_descale)))


def full_cache(arrays, q, k, scales: tuple) -> _attention.Cache:
    return _attention.Cache(arrays.full((int(q.shape[0]),), int(k.shape[1]), q, "int32"), None, scales=scales)


def _refuse(**given) -> None:
    for name, value in given.items():
        if value is not None:
            raise NotImplementedError(f"{name}: no rung has it.\n  The same without it, and {_BEFORE[name]} before the call")


def _in_one_piece(arrays, numbers):
    """Of a part of a table a copy, which is small; what is no array at all is said later."""
    if not arrays.is_array(numbers) or 0 in numbers.shape or len(numbers.shape) > 2:
        return numbers
    wanted = (*numbers.shape[1:], 1)
    lies_so = all(a == b for a, b, n in zip(arrays.strides(numbers), wanted, numbers.shape) if n > 1)
    return numbers if lies_so else arrays.contiguous(numbers)


def _append(arrays, q, k_cache, v_cache, k, v, cache: _attention.Cache, options) -> _attention.Cache:
    """The cache with those, and the lengths that it has then."""
    call = _attention.Call(arrays, q, k_cache, v_cache, *options, cache)  # all that is refused, before a byte is written
    for name, array in (("k", k), ("v", v)):
        call._refuse_another_kind(arrays, name, array, q)
        if len(array.shape) != 4 or tuple(array.shape[i] for i in (0, 2, 3)) != (call.batch, call.kv_heads, call.d // call.of_a_byte) or tuple(k.shape) != tuple(v.shape):
            raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [batch, n, kv_heads, d], here [{call.batch}, n, {call.kv_heads}, {call.d // call.of_a_byte}].")
        if array.dtype != k_cache.dtype:
            to = "\n  Quantised as the cache is: flash_ladder.quantize_kv(k, v, k_descale=..., v_descale=...)" if cache.scales else ""
            raise TypeError(f"{name} is {array.dtype}, and k_cache {k_cache.dtype}; they must be the same.{to}")
        call._device_of(("q", q), (name, array))
    for name, array in zip(("k_new_descale", "v_new_descale"), cache.new_scales):
        call._refuse_another_kind(arrays, name, array, q)
        if str(array.dtype).rpartition(".")[2] != "float32":
            raise TypeError(f"{name} is {array.dtype}; the kernel reads float32.")
        if tuple(array.shape) != tuple(k.shape[:3]):
            raise ValueError(f"{name} has the shape {list(array.shape)}; it must be [batch, n, kv_heads], here {[int(n) for n in k.shape[:3]]}.")
        call._device_of(("q", q), (name, array))
    scales = zip(("k_descale", "v_descale"), cache.scales if cache.new_scales else ())
    for name, array in (("k_cache", k_cache), ("v_cache", v_cache), *scales):
        if not arrays.is_writeable(array) or _attention._overlaps_itself(tuple(array.shape), arrays.strides(array)):
            raise ValueError(f"{name} cannot be written to, or elements of it lie in the same place.")
        for new, other in (("k", k), ("v", v)):
            (begin, end), (other_begin, other_end) = call._extent(array), call._extent(other)
            if begin < other_end and other_begin < end:
                raise ValueError(f"{new} lies in the memory of {name}, which is written while it is read.")
    plan = call.plan(None, False)
    new = int(k.shape[1])
    if call.device == _native.EMULATOR:
        call.check_lengths()
        for sequence, length in enumerate(cache.cache_seqlens.tolist()):
            if length + new > call.n_k:
                raise ValueError(f"Sequence {sequence} has {length} keys and gets {new} more; the cache has room for {call.n_k}.")
            if cache.block_table is not None:
                call._check_pages(sequence, cache.block_table[sequence, : -(-(length + new) // call.page)].tolist())
    if 0 in (call.batch, new):
        return cache
    lengths = arrays.empty((call.batch,), q, "int32")
    told, usable = _attention._Told(call, plan), []
    for name, array in (("k", k), ("v", v)):
        if (arrays.strides(array)[3] != 1 and call.d > 1) or (cache.scales and any(step % 2 for step in arrays.strides(array)[:3])):
            array = arrays.contiguous(array)
        usable.append(array)
        by_batch, by_row, by_head, _ = (call.of_a_byte * by for by in arrays.strides(array))
        begin, end = call._extent(array)
        told._add(name, array, (by_batch, by_head, by_row), end - begin, written=False)
    for name, array in zip(("k_scales", "v_scales"), cache.new_scales):
        told.scales(name, array)
    for name, array in zip(("K_scales", "V_scales"), cache.scales if cache.new_scales else ()):
        told.scales(name, array, written=True)
    for name, array in (("K", call.k), ("V", call.v)):
        told.rows(name, call._usable(array, plan), written=True)
    for name, array in cache.whole_numbers.items():
        told.whole(name, array)
    told.whole("lengths", lengths, written=True)
    addresses = [arrays.address(each) for each in told.tensors]
    appended = _native.Appended(told.layouts, len(addresses), new)
    _native.append(plan, appended, addresses, arrays.stream(call.device), tuple(told.tensors))
    if is_of_torch(q):
        from ._torch import has_changed

        has_changed(k_cache, v_cache)
    return _attention.Cache(lengths, cache.block_table, tuple(usable), cache.cache_seqlens, (appended,), cache.scales, cache.new_scales)
