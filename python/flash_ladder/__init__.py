"""The kernels of flash-ladder from Python: attention on a GPU, or the same kernels emulated on any machine."""

from ._attention import Why, attention, why
from ._flash_attn import flash_attn_func, flash_attn_varlen_func
from ._native import rungs

__all__ = ["Why", "attention", "flash_attn_func", "flash_attn_varlen_func", "rungs", "why"]
