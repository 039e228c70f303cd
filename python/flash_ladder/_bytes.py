"""attention() of queries, keys and values that are all bytes."""

from __future__ import annotations

from . import _attention
from ._arrays import is_of_jax, is_of_torch, library_of

RESULTS = ("bfloat16", "float16")


def attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, descales: tuple):
    for name, scales in zip(("k_descale", "v_descale"), descales[1:]):
        if scales is None:
            raise ValueError(f"q_descale comes with k_descale and v_descale, and there is no {name}: all three.")
    if intervals is not None:
        raise NotImplementedError("mask_intervals or block_mask beside q_descale: no rung has both.\n  The same without one of them")
    if is_of_jax(q):
        raise TypeError("q is of JAX, for which no rung reads bytes.\n  PyTorch, NumPy and CuPy have such arrays")
    arrays = library_of(q)
    if is_of_torch(q):
        from ._torch import attend_bytes as way
    else:
        way = run
    for name, array in (("q", q), ("k", k), ("v", v)):
        _attention.Call._refuse_another_kind(arrays, name, array, q)
    result = "bfloat16" if out is None else str(getattr(out, "dtype", type(out))).rpartition(".")[2]
    if result not in RESULTS:
        raise TypeError(f"out is {out.dtype}; with q_descale it is one of {', '.join(RESULTS)}.")
    way_of = _attention.Descales(*descales, result)
    return way(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, way_of)


def run(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, descales):
    call = _attention.Call(library_of(q), q, k, v, causal, scale, window, softcap, alibi_slopes, sink, descales)
    if out is not None:
        call.check_out(out)
    result, lse, _ = call.run(rung, bool(return_lse), out)
    return (result, lse) if return_lse else result
