"""The kernels of flash-ladder from Python: attention on a GPU, or the same kernels emulated on any machine."""

import sys

from ._attention import Why, attention, why
from ._blocks import block_lists
from ._cache import flash_attn_with_kvcache
from ._flash_attn import (
    flash_attn_func, flash_attn_kvpacked_func, flash_attn_qkvpacked_func, flash_attn_varlen_func, flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
)  # fmt: skip
from ._native import rungs
from ._quantize import quantize_kv, quantize_qk

__version__ = "1.0"  # of the ladder and of the package: nobody else says it
__all__ = ["Why", "attention", "block_lists", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "quantize_kv", "quantize_qk", "rungs", "why"]  # fmt: skip

if "torch" in sys.modules:  # torch.ops.flash_ladder is there at once, for a trace that is loaded, say; otherwise from the first call on
    from . import _torch as _torch
