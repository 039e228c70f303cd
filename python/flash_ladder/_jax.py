"""JAX, in and out of jit: XLA calls back with the buffers, in a GPU's memory or the host's, and the stream that is theirs."""

from __future__ import annotations

import ctypes
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from . import _attention, _native
from ._arrays import NumPy


def attention(q, k, v, causal, scale, window, softcap, alibi_slopes, sink, return_lse, out, rung, packed, deterministic):
    if out is not None:
        raise NotImplementedError("out: JAX's arrays are never written to.\n  Without it: the result is a new array")
    if isinstance(packed, _attention.MaskIntervals):
        raise NotImplementedError("mask_intervals: they are not handed on from JAX yet.\n  By PyTorch or NumPy: flash_ladder.attention")
    if packed is not None:
        raise NotImplementedError("cu_seqlens: sequences of several lengths are not handed on from JAX yet.\n  One at a time: flash_ladder.attention")
    refuse_traced_options(causal=causal, scale=scale, window=window, softcap=softcap, return_lse=return_lse)
    # Shapes and types are known now, numbers later; what is wrong with the former is said now.
    call = call_of(q, k, v, causal, scale, window, softcap, alibi_slopes, sink)
    lse = jax.ShapeDtypeStruct(call.lse_shape, jnp.float32)
    if call.needs_no_kernel:
        _attention._named(rung)
        result = jnp.zeros(q.shape, q.dtype)
        if sink is None:
            return (result, jnp.full(lse.shape, -math.inf, lse.dtype)) if return_lse else result
        return (result, jnp.broadcast_to(sink.astype(lse.dtype)[:, None], lse.shape)) if return_lse else result
    plan = call.plan(rung, return_lse)

    # As the kernel takes them, in one piece. What has to be copied for that, XLA copies.
    as_taken = (lambda each: each) if plan.strides else (lambda each: jnp.swapaxes(each, 1, 2))
    inputs = {"Q": as_taken(q), "K": as_taken(k), "V": as_taken(v)}
    inputs |= {name: each.astype(jnp.float32) for name, each in (("slopes", alibi_slopes), ("sinks", sink)) if each is not None}
    results = {"O": jax.ShapeDtypeStruct(inputs["Q"].shape, q.dtype)}
    if return_lse or plan.needs_lse:
        results["LSE"] = lse
    if plan.workspace_bytes:
        results["workspace"] = jax.ShapeDtypeStruct((plan.workspace_bytes,), jnp.uint8)
    tensors = inputs | results
    layouts = b"".join(_layout(name, each, name in results, plan.strides) for name, each in tensors.items())

    raised = []

    def start(context, results, inputs):
        buffers = inputs | results  # sorted by their names now
        kind, number = buffers["Q"].__dlpack_device__()
        device = _native.EMULATOR if kind == 1 else number
        here = _native.plan(call.text(), plan.rung, device, bool(return_lse))
        addresses, stream = [_address(buffers[name]) for name in tensors], 0 if device == _native.EMULATOR else context.stream
        try:
            here.run(layouts, addresses, stream, tuple(buffers.values()))
        except BaseException as reason:
            raised.append(reason)
            raise

    try:
        found = _without_derivatives(buffer_callback(start, results, vmap_method="sequential"))(inputs)
    except jax.errors.JaxRuntimeError:
        if raised:  # Ctrl-C, for one, is an error of a callback to XLA; under jit it stays one
            raise raised[0] from None
        raise
    return (as_taken(found["O"]), found["LSE"]) if return_lse else as_taken(found["O"])


def _without_derivatives(call):
    """In our words; JAX's own are about callbacks."""
    call = jax.custom_jvp(call)

    @call.defjvp
    def _(primals, tangents):
        raise NotImplementedError("Derivatives: JAX has none of flash_ladder's kernels yet.\n  jax.nn.dot_product_attention; or PyTorch, whose gradients are kernels, too")

    return call


def refuse_traced_options(**options) -> None:
    for name, value in options.items():
        for each in value if isinstance(value, (tuple, list)) else [value]:
            if isinstance(each, jax.core.Tracer):
                raise TypeError(f"{name} is traced; a kernel is chosen by it, so it must be known.\n  jax.jit(..., static_argnames={name!r})")


def call_of(*arguments, **options) -> _attention.Call:
    """What is asked, on the device that JAX prefers."""
    call = _attention.Call(NumPy(), *map(_without_numbers, arguments), **{name: _without_numbers(each) for name, each in options.items()})
    call.device = _default_device()
    return call


def _without_numbers(value):
    return np.broadcast_to(np.zeros((), value.dtype), value.shape) if isinstance(value, jax.Array) and value.ndim > 0 else value


def _layout(name: str, array, written: bool, heads_in_rows: bool) -> bytes:
    *_, rows, columns = 1, *array.shape
    by_batch, by_head, by_row = rows * columns, columns, 1
    if len(array.shape) == 4:
        by_batch, by_head, by_row = math.prod(array.shape[1:]), rows * columns, columns
        if heads_in_rows:
            by_head, by_row = by_row, by_head
    return _native.layout(name, (by_batch, by_head, by_row), math.prod(array.shape) * array.dtype.itemsize, written)


def _address(buffer) -> int:
    """Of a DLTensor the first field; and behind its other ones, how far from there it begins."""
    capsule = buffer.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = pointer(capsule, b"dltensor")
    return ctypes.c_void_p.from_address(tensor).value + ctypes.c_uint64.from_address(tensor + 40).value


def _default_device() -> int:
    device = jax.local_devices()[0]
    if device.platform == "cpu":
        return _native.EMULATOR
    if "cuda" not in device.client.platform_version.lower():
        raise NotImplementedError(f"JAX runs on '{device.platform}'; flash_ladder runs on NVIDIA GPUs, and on the CPU it is emulated.\n  Emulated: JAX_PLATFORMS=cpu")
    return device.local_hardware_id


