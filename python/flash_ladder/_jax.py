"""JAX, in and out of jit: a callback to the host, so for arrays in host memory alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from . import _attention


def attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed):
    if out is not None:
        raise NotImplementedError("out: JAX's arrays are never written to.\n  Without it: the result is a new array")
    if jax.default_backend() != "cpu":
        raise NotImplementedError(
            f"JAX runs on '{jax.default_backend()}', and flash_ladder reaches its arrays on the host alone.\n"
            "  Emulated: JAX_PLATFORMS=cpu. On a GPU: PyTorch or CuPy"
        )
    if packed is not None:
        raise NotImplementedError("cu_seqlens: sequences of several lengths are not handed on from JAX yet.\n  One at a time: flash_ladder.attention")
    of_heads = (alibi_slopes, sink)

    # Shapes and types are known now, numbers later; what is wrong with the former is said now.
    _attention.check(*map(_without_numbers, (q, k, v)), causal, scale, window, softcap, *map(_without_numbers, of_heads), return_lse, rung)

    def on_host(q, k, v, of_heads):
        arrays = [np.asarray(each) for each in (q, k, v)]
        return _attention.run(*arrays, causal, scale, window, softcap, *jax.tree.map(np.asarray, of_heads), return_lse, None, rung, None)

    result = jax.ShapeDtypeStruct(q.shape, q.dtype)
    if return_lse:
        batch, n, heads, _ = q.shape
        result = (result, jax.ShapeDtypeStruct((batch, heads, n), jnp.float32))
    return jax.pure_callback(on_host, result, q, k, v, of_heads, vmap_method="sequential")


def _without_numbers(array):
    return np.broadcast_to(np.zeros((), array.dtype), array.shape) if isinstance(array, jax.Array) else array
