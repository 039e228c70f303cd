"""quantize_kv(): keys and values of a byte each, for flash_attn_with_kvcache."""

from __future__ import annotations

from . import _attention
from ._arrays import is_of_jax, is_of_torch, library_of

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0}


def quantize_kv(k, v, dtype="float8_e4m3fn", *, k_descale=None, v_descale=None):
    """Keys and values as bytes, and what these have to be multiplied by.

    A scale is the largest magnitude of a head of a sequence over the largest number of the type, 448 or 127, and 0 of a head of zeros.
    Each number is divided by it in float32 and rounded to the nearest of the type, of two that are as near to the even one; beyond the
    largest number it becomes that. NaN stays NaN in float8_e4m3fn, and becomes 0 in int8.

    Args:
        k: [batch, n, kv_heads, d], of PyTorch, NumPy or CuPy. All of it counts: rows that nobody uses are left out before.
        v: As k.
        dtype: "float8_e4m3fn" or "int8", or PyTorch's name for it.
        k_descale: float32 [batch, kv_heads], the scale of keys that are there: so are new ones for the same cache.
        v_descale: Of values, as k_descale.

    Returns:
        k, v, k_descale and v_descale, as flash_attn_with_kvcache takes them.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: The library has no such type.
    """
    name = str(dtype).rpartition(".")[2]
    if name not in LARGEST:
        raise TypeError(f"dtype is {dtype!r}; it is one of {', '.join(LARGEST)}.")
    if is_of_jax(k):
        raise TypeError("k is of JAX, whose arrays never change; a cache is written in place.\n  PyTorch, NumPy and CuPy have such arrays")
    arrays = library_of(k)
    results, scales = [], []
    for of, array, scale in (("k", k, k_descale), ("v", v, v_descale)):
        _attention.Call._refuse_another_kind(arrays, of, array, k)
        if len(array.shape) != 4:
            raise ValueError(f"{of} has the shape {list(array.shape)}; it must be [batch, n, kv_heads, d].")
        heads = (int(array.shape[0]), int(array.shape[2]))
        if scale is not None:
            _attention.Call._refuse_another_kind(arrays, f"{of}_descale", scale, k)
            if tuple(scale.shape) != heads:
                raise ValueError(f"{of}_descale has the shape {list(scale.shape)}; it must be [batch, kv_heads], here {list(heads)}.")
        bytes_, scale = (_by_torch if is_of_torch(k) else _by_numpy)(arrays, array, scale, name)
        results.append(bytes_)
        scales.append(scale)
    return (*results, *scales)


def _by_torch(arrays, array, scale, name: str):
    torch, largest = arrays.torch, LARGEST[name]
    numbers = array.detach().float()
    if scale is None:
        scale = numbers.abs().amax((1, 3)) / largest if numbers.numel() else numbers.new_zeros(array.shape[0], array.shape[2])
    scale = scale.float()
    numbers = (numbers / torch.where(scale == 0, 1.0, scale)[:, None, :, None]).clamp(-largest, largest)
    if name == "int8":
        numbers = numbers.round().nan_to_num(0.0)
    return numbers.to(getattr(torch, name)), scale


def _by_numpy(arrays, array, scale, name: str):
    module, largest = arrays.module, LARGEST[name]
    numbers = array.astype("float32")
    if scale is None:
        scale = abs(numbers).max((1, 3)) / module.float32(largest) if numbers.size else module.zeros((array.shape[0], array.shape[2]), "float32")
    scale = scale.astype("float32")
    numbers = module.clip(numbers / module.where(scale == 0, module.float32(1), scale)[:, None, :, None], -largest, largest)
    if name == "int8":
        return module.nan_to_num(module.rint(numbers)).astype("int8"), scale
    try:
        return numbers.astype(name), scale
    except TypeError:
        pass
    try:
        from ml_dtypes import float8_e4m3fn
    except ImportError:
        raise NotImplementedError("NumPy has no float8_e4m3fn.\n  PyTorch has; or with the package ml_dtypes; or int8") from None
    return numbers.astype(float8_e4m3fn), scale
