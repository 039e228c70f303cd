"""attention() of queries and keys that are bytes: of values that are, too, or of values of 16 bits beside int8."""

from __future__ import annotations

from . import _attention
from ._arrays import is_of_jax, is_of_torch, library_of

RESULTS = ("bfloat16", "float16")


def attend(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, intervals, descales: tuple):
    of_rows = str(getattr(q, "dtype", "")).rpartition(".")[2] == "int8"
    if of_rows and (descales[1] is None or descales[2] is not None):
        raise ValueError("q_descale of int8 comes with k_descale, and values of 16 bits have no v_descale.")
    for name, scales in zip(("k_descale", "v_descale"), descales[1:]):
        if scales is None and not of_rows:
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
    as_out = v if of_rows else out
    result = "bfloat16" if as_out is None else str(getattr(as_out, "dtype", type(as_out))).rpartition(".")[2]
    if of_rows and result not in RESULTS:
        raise TypeError(f"v is {v.dtype}; beside int8 it is one of {', '.join(RESULTS)}.")
    if of_rows and out is not None and out.dtype != v.dtype:
        raise TypeError(f"out is {out.dtype}, and v {v.dtype}; they must be the same.")
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
