# The types of what a caller sees. An array is NumPy's, PyTorch's, CuPy's or JAX's, and the result is one like q; the log-sum-exp is of
# the same library, in float32, for which there is no common word.
import dataclasses
from typing import Any, Dict, List, Literal, Optional, Tuple, TypeVar, Union, overload

_Array = TypeVar("_Array")
_Window = Optional[Tuple[Optional[int], Optional[int]]]

__version__: str
__all__ = ["Why", "attention", "block_lists", "flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "quantize_kv", "quantize_qk", "rungs", "why"]  # fmt: skip

@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, causal: bool = ..., scale: Optional[float] = ..., window: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., sink: Any = ..., mask_intervals: Optional[Tuple[Any, Any]] = ..., block_mask: Any = ..., return_lse: Literal[False] = ...,
    out: Optional[_Array] = ..., rung: Optional[str] = ..., deterministic: bool = ...,
    q_descale: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
) -> _Array: ...  # fmt: skip
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, causal: bool = ..., scale: Optional[float] = ..., window: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., sink: Any = ..., mask_intervals: Optional[Tuple[Any, Any]] = ..., block_mask: Any = ..., return_lse: Literal[True],
    out: Optional[_Array] = ..., rung: Optional[str] = ..., deterministic: bool = ...,
    q_descale: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
) -> Tuple[_Array, Any]: ...  # fmt: skip
@overload
def attention(
    q: _Array, k: _Array, v: _Array, *, causal: bool = ..., scale: Optional[float] = ..., window: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., sink: Any = ..., mask_intervals: Optional[Tuple[Any, Any]] = ..., block_mask: Any = ..., return_lse: bool, out: Optional[_Array] = ...,
    rung: Optional[str] = ..., deterministic: bool = ...,
    q_descale: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
) -> Union[_Array, Tuple[_Array, Any]]: ...  # fmt: skip

def block_lists(block_mask: Any, q: Any, k: Any, *, causal: bool = ...) -> Any: ...

# flash-attn's. They give three with return_attn_probs.
@overload
def flash_attn_func(
    q: _Array, k: _Array, v: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_func(
    q: _Array, k: _Array, v: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., *,
    return_attn_probs: Literal[True],
) -> Tuple[_Array, Any, None]: ...  # fmt: skip
@overload
def flash_attn_varlen_func(
    q: _Array, k: _Array, v: _Array, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., return_attn_probs: Literal[False] = ...,
    block_table: None = ..., *, seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_varlen_func(
    q: _Array, k: _Array, v: _Array, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., *, return_attn_probs: Literal[True],
    block_table: None = ..., seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> Tuple[_Array, Any, None]: ...  # fmt: skip
@overload
def flash_attn_qkvpacked_func(
    qkv: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_qkvpacked_func(
    qkv: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., *,
    return_attn_probs: Literal[True],
) -> Tuple[_Array, Any, None]: ...  # fmt: skip
@overload
def flash_attn_kvpacked_func(
    q: _Array, kv: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ...,
    return_attn_probs: Literal[False] = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_kvpacked_func(
    q: _Array, kv: _Array, dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ...,
    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., *,
    return_attn_probs: Literal[True],
) -> Tuple[_Array, Any, None]: ...  # fmt: skip
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: _Array, cu_seqlens: Any, max_seqlen: int, dropout_p: float = ..., softmax_scale: Optional[float] = ...,
    causal: bool = ..., window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ...,
    deterministic: bool = ..., return_attn_probs: Literal[False] = ..., block_table: None = ..., *,
    seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: _Array, cu_seqlens: Any, max_seqlen: int, dropout_p: float = ..., softmax_scale: Optional[float] = ...,
    causal: bool = ..., window_size: _Window = ..., softcap: float = ..., alibi_slopes: Any = ...,
    deterministic: bool = ..., *, return_attn_probs: Literal[True], block_table: None = ...,
    seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> Tuple[_Array, Any, None]: ...  # fmt: skip
@overload
def flash_attn_varlen_kvpacked_func(
    q: _Array, kv: _Array, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., return_attn_probs: Literal[False] = ...,
    block_table: None = ..., *, seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_varlen_kvpacked_func(
    q: _Array, kv: _Array, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = ..., softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ...,
    softcap: float = ..., alibi_slopes: Any = ..., deterministic: bool = ..., *, return_attn_probs: Literal[True],
    block_table: None = ..., seqused_k: Any = ..., leftpad_k: Any = ..., sink: Any = ...,
) -> Tuple[_Array, Any, None]: ...  # fmt: skip

@overload
def flash_attn_with_kvcache(
    q: _Array, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., rotary_cos: None = ...,
    rotary_sin: None = ..., cache_seqlens: Any = ..., cache_batch_idx: Any = ..., cache_leftpad: None = ..., block_table: Any = ...,
    softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
    rotary_interleaved: bool = ..., alibi_slopes: Any = ..., num_splits: int = ..., return_softmax_lse: Literal[False] = ...,
    k_descale: Any = ..., v_descale: Any = ..., k_new_descale: Any = ..., v_new_descale: Any = ...,
) -> _Array: ...  # fmt: skip
@overload
def flash_attn_with_kvcache(
    q: _Array, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., rotary_cos: None = ...,
    rotary_sin: None = ..., cache_seqlens: Any = ..., cache_batch_idx: Any = ..., cache_leftpad: None = ..., block_table: Any = ...,
    softmax_scale: Optional[float] = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
    rotary_interleaved: bool = ..., alibi_slopes: Any = ..., num_splits: int = ..., *,
    return_softmax_lse: Literal[True], k_descale: Any = ..., v_descale: Any = ..., k_new_descale: Any = ..., v_new_descale: Any = ...,
) -> Tuple[_Array, Any]: ...  # fmt: skip
# k, v, k_descale, v_descale
def quantize_kv(k: Any, v: Any, dtype: Any = ..., *, per: Optional[str] = ..., k_descale: Any = ..., v_descale: Any = ...) -> Tuple[Any, Any, Any, Any]: ...
# q, k, q_descale, k_descale
def quantize_qk(q: Any, k: Any, *, smooth_k: bool = ...) -> Tuple[Any, Any, Any, Any]: ...
def rungs() -> List[Dict[str, Any]]: ...
@dataclasses.dataclass(frozen=True)
class Why:
    problem: str
    rung: Optional[str]
    variant: Optional[str]
    device: str
    also: List[str]
    refused: Dict[str, str]
    largest_score: Optional[float] = ...
    says_why: Optional[str] = ...

def why(
    *problem: Any, lse: bool = ..., device: Optional[int] = ..., deterministic: bool = ..., rung: Optional[str] = ..., **options: Any
) -> Why: ...  # fmt: skip
