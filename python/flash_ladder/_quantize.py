"""quantize_kv(): keys and values of a byte each, or of half of one, for flash_attn_with_kvcache. quantize_qk(): queries and keys of int8."""

from __future__ import annotations

from . import _attention
from ._arrays import is_of_jax, is_of_torch, library_of

LARGEST = {"float8_e4m3fn": 448.0, "int8": 127.0, "int4": 7.0}
# Of what a scale is: over which axes of [batch, n, kv_heads, d] it is, and the shape that all scales have.
PER = {"head": ((1, 3), "[batch, kv_heads]"), "token": ((3,), "[batch, n, kv_heads]"), "channel": ((1,), "[batch, kv_heads, d]")}


def quantize_kv(k, v, dtype="float8_e4m3fn", *, per=None, k_descale=None, v_descale=None):
    """Keys and values as bytes, and what these have to be multiplied by.

    A scale is the largest magnitude of what it is of, a head of a sequence, say, over the largest number of the type, 448, 127 or 7, and 0 of
    zeros.
    Each number is divided by it in float32 and rounded to the nearest of the type, of two that are as near to the even one; beyond the
    largest number it becomes that. NaN stays NaN in float8_e4m3fn, and becomes 0 in int8 and int4.

    In int4 numbers go from -7 to 7, or with scales that are given from -8 on. Two share a byte of uint8, the even column in its lower half.
    In memory all rows of a head stand side by side. So do a head's scales per token, in any type: one has four bytes, a row in int4 64 at
    most, and a GPU fetches lines of 128.

    Args:
        k: [batch, n, kv_heads, d], of PyTorch, NumPy or CuPy. All of it counts: rows that nobody uses are left out before.
        v: As k.
        dtype: "float8_e4m3fn", "int8" or "int4", or PyTorch's name for it.
        per: What has a scale of its own: a "head" of a sequence, each "token" of a head, or each "channel", which is a column of a head.
            None: a head, or in int4, for which kernels read no other scales, a token.
        k_descale: float32, the scales of keys that are there: so are new ones for the same cache. Per head [batch, kv_heads], per token
            [batch, n, kv_heads], per channel [batch, kv_heads, d].
        v_descale: Of values, as k_descale.

    Returns:
        k, v, k_descale and v_descale, as flash_attn_with_kvcache takes them. In int4 k and v are uint8 [batch, n, kv_heads, d / 2].

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
        NotImplementedError: The library has no such type, or no kernel reads such scales.
    """
    name = str(dtype).rpartition(".")[2]
    if name not in LARGEST:
        raise TypeError(f"dtype is {dtype!r}; it is one of {', '.join(LARGEST)}.")
    if is_of_jax(k):
        raise TypeError("k is of JAX, whose arrays never change; a cache is written in place.\n  PyTorch, NumPy and CuPy have such arrays")
    per = per or ("token" if name == "int4" else "head")
    if per not in PER:
        raise ValueError(f"per is {per!r}; it is one of {', '.join(PER)}.")
    if name == "int4" and per != "token":
        raise NotImplementedError(f"int4 with a scale per {per}: no rung reads that.\n  int4 per token, or int8 per {per}")
    arrays = library_of(k)
    results, scales = [], []
    for of, array, scale in (("k", k, k_descale), ("v", v, v_descale)):
        _attention.Call._refuse_another_kind(arrays, of, array, k)
        if len(array.shape) != 4:
            raise ValueError(f"{of} has the shape {list(array.shape)}; it must be [batch, n, kv_heads, d].")
        if name == "int4" and array.shape[3] % 2:
            raise ValueError(f"{of} has {int(array.shape[3])} columns; of four bits two share a byte, so an odd number of columns is none.")
        axes, form = PER[per]
        scaled = tuple(int(n) for axis, n in enumerate(array.shape) if axis not in axes)
        if scale is not None:
            _attention.Call._refuse_another_kind(arrays, f"{of}_descale", scale, k)
            if tuple(scale.shape) != scaled:
                raise ValueError(f"{of}_descale has the shape {list(scale.shape)}; it must be {form}, here {list(scaled)}.")
        bytes_, scale = (_by_torch if is_of_torch(k) else _by_numpy)(arrays, array, scale, name, per)
        results.append(bytes_)
        scales.append(scale)
    return (*results, *scales)


def quantize_qk(q, k, *, smooth_k=True):
    """Queries and keys in int8, each row with a scale of its own, for attention() beside values of 16 bits.

    A scale is the largest magnitude of a row over 127, and 0 of a row of zeros. Each number is divided by it in float32 and rounded to the
    nearest whole number, of two that are as near to the even one; NaN becomes 0.

    With smooth_k the mean of a head's keys is taken from each of them before, in float32. It adds the same to all scores of a query, so no
    weight and no result changes; but a column that is large in all keys alike no longer makes their steps large. The logarithms of row sums
    are those of the keys that are left.

    Args:
        q: [batch, n_q, heads, d], of PyTorch, NumPy or CuPy.
        k: [batch, n_k, kv_heads, d], as q.
        smooth_k: The mean of a head's keys is taken from them.

    Returns:
        q and k in int8, q_descale [batch, n_q, heads] and k_descale [batch, n_k, kv_heads], float32, in whose memory a head's scales stand
        side by side, as attention takes them.

    Raises:
        ValueError: The arrays do not fit together.
        TypeError: Something is of the wrong type.
    """
    if is_of_jax(q):
        raise TypeError("q is of JAX, for which no rung reads bytes.\n  PyTorch, NumPy and CuPy have such arrays")
    arrays, by = library_of(q), _by_torch if is_of_torch(q) else _by_numpy
    for of, array in (("q", q), ("k", k)):
        _attention.Call._refuse_another_kind(arrays, of, array, q)
        if len(array.shape) != 4:
            raise ValueError(f"{of} has the shape {list(array.shape)}; it must be [batch, n, heads, d].")
    k = k.detach().float() if is_of_torch(k) else k.astype("float32")
    if smooth_k and k.shape[1]:
        k = k - k.mean(1, keepdim=True) if is_of_torch(k) else k - k.mean(1, keepdims=True)
    (q, q_scale), (k, k_scale) = (by(arrays, each, None, "int8", "token") for each in (q, k))
    return q, k, q_scale, k_scale


def _of_each(scale, per: str):
    """Beside numbers [batch, n, kv_heads, d]."""
    return scale[:, None, :, None] if per == "head" else scale[:, None] if per == "channel" else scale[..., None]


def _by_torch(arrays, array, scale, name: str, per: str):
    torch, largest, axes = arrays.torch, LARGEST[name], PER[per][0]
    numbers = array.detach().float()
    by_head = lambda each: each.transpose(1, 2).contiguous().transpose(1, 2) if per == "token" else each
    if scale is None:
        scale = numbers.abs().amax(axes) / largest if numbers.numel() else numbers.new_zeros(numbers.shape).sum(axes)
    scale = by_head(scale.float())
    of_each = _of_each(scale, per)
    numbers = (numbers / torch.where(of_each == 0, 1.0, of_each)).clamp(-8 if name == "int4" else -largest, largest)
    if name == "float8_e4m3fn":
        return numbers.to(torch.float8_e4m3fn), scale
    numbers = numbers.round().nan_to_num(0.0).to(torch.int8)
    if name == "int4":
        return by_head(_packed(numbers.view(torch.uint8))), scale
    return numbers, scale


def _packed(numbers):
    """Whole numbers of four bits with their signs, in bytes of which the upper half says nothing."""
    return numbers[..., ::2] & 15 | numbers[..., 1::2] << 4


def _by_numpy(arrays, array, scale, name: str, per: str):
    module, largest, axes = arrays.module, LARGEST[name], PER[per][0]
    numbers = array.astype("float32")
    by_head = lambda each: module.ascontiguousarray(each.swapaxes(1, 2)).swapaxes(1, 2) if per == "token" else each
    if scale is None:
        scale = abs(numbers).max(axes) / module.float32(largest) if numbers.size else numbers.sum(axes)
    scale = by_head(scale.astype("float32"))
    of_each = _of_each(scale, per)
    numbers = module.clip(numbers / module.where(of_each == 0, module.float32(1), of_each), -8 if name == "int4" else -largest, largest)
    if name != "float8_e4m3fn":
        numbers = module.nan_to_num(module.rint(numbers)).astype("int8")
        if name == "int4":
            return by_head(_packed(numbers.view("uint8"))), scale
        return numbers, scale
    try:
        return numbers.astype(name), scale
    except TypeError:
        pass
    try:
        from ml_dtypes import float8_e4m3fn
    except ImportError:
        raise NotImplementedError("NumPy has no float8_e4m3fn.\n  PyTorch has; or with the package ml_dtypes; or int8") from None
    return numbers.astype(float8_e4m3fn), scale
