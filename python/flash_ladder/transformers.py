"""Models of transformers: after register(), attn_implementation="ladder" is one of the ways to attend.

transformers says what a query sees by a function of indices (transformers.masking_utils). mask() reads that function, and hands on what it
means; what it cannot read it refuses. attend() makes one call of it, the same in a compiled graph as outside."""

from __future__ import annotations

import functools
import types
from typing import List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from . import _attention, _native, _torch
from ._arrays import library_of
from ._attention import Cache, MaskIntervals, Packed, attention
from ._attention import attend as attend_packed

# transformers looks for every name that has "flash" in it on its hub of kernels.
NAME = "ladder"
OTHERWISE = "\n  For this model: attn_implementation='sdpa'"


__all__ = ["register"]


def register() -> None:
    """Makes the kernels known to transformers, once: from then on a model takes attn_implementation="ladder".

    What no kernel takes, dropout or a mask of one's own, is a NotImplementedError when the model is called.
    """
    AttentionInterface.register(NAME, attend)
    AttentionMaskInterface.register(NAME, mask)


# ---- what a mask says ----------------------------------------------------------------------------------------------
#
# What mask() hands to all layers has four dimensions, as transformers passes such a tensor on without a look. It is one of three:
# - [batch, left + 2, right + 2, 0], without numbers: all keys are there, and a query sees so many before and behind its own; -1 is all.
# - [batch, 1, 1, HEADER + queries + keys], int64. Of each query and each key the number of its sequence in the row; of a key that nobody
#   sees -1. The header is MAGIC, left, right, how far the first query is behind the first key, and whether it is to be refused. Where blocks
#   see themselves whole, as pictures do, and the prefix of a PaliGemma, the same again: left and right within what they are added to, and
#   of each query and each key the number of its block, or -1.
# - [1, 1, 1, batch], int32, of one query of each sequence without gradients: how many keys it sees, which are the first ones. Or
#   [1, 1, 1, 2 batch + batch keys]: that, the sequences' numbers, and of each all keys, first those that it sees. Nobody on the host knows
#   these numbers, so nobody waits for them, and a CUDA graph makes them anew in each replay.

WHERE = masking_utils.causal_mask_function.__code__.co_filename
HEADER, OF_BLOCKS, MAGIC = 5, 2, 0x6C61646465720001
PICTURES = "Blocks that see themselves whole, as pictures do, in a way that is no interval of keys for each query: no rung takes that." + OTHERWISE


def mask(
    batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=masking_utils.causal_mask_function, attention_mask=None,
    device=None, **others,
):  # fmt: skip
    """What the function means, as above."""
    queries = (torch.arange(q_length, device=device) + q_offset)[None]
    keys = (torch.arange(kv_length, device=device) + kv_offset)[None]
    terms = _read(mask_function, queries, keys)
    is_one = q_length == 1 and not torch.is_grad_enabled()
    if any(isinstance(each, _Remapped) for each in terms) and not any(isinstance(each, _Packed) for each in terms):
        raise NotImplementedError("The mask's positions are other ones than the rows', and nothing says which rows are one sequence." + OTHERWISE)
    windows = [each for each in terms if isinstance(each, _Window)]
    lefts, rights = [each.left for each in windows if each.left >= 0], [each.right for each in windows if each.right >= 0]
    left, right = min(lefts) if lefts else -1, min(rights) if rights else -1
    same = [each for each in terms if isinstance(each, _Same)]
    there = [each.there for each in terms if isinstance(each, _Padding)]
    if attention_mask is not None:
        there.append(F.pad(attention_mask, (0, max(0, kv_length + kv_offset - attention_mask.shape[-1]))))
    there = [each[:, kv_offset : kv_offset + kv_length].bool() for each in there]
    blocks = [each for each in terms if isinstance(each, _Blocks)]
    if is_one and (there or same or blocks):
        return _of_one_query(_seen(mask_function, batch_size, queries, keys, there))
    if not _is_read_by_others(queries, *there):
        for each in blocks:
            if not (each.ids >= 0).any():  # what they would be added to is all
                left, right = _narrower(left, each.left), _narrower(right, each.right)
        blocks, there = [each for each in blocks if (each.ids >= 0).any()], [each for each in there if not each.all()]
    if len(blocks) > 1:
        raise NotImplementedError(PICTURES)
    lies_right = left < 0 and right < 0 or (not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_offset + kv_length)
    if lies_right and not (same or there or blocks):
        return torch.empty((batch_size, left + 2, right + 2, 0), dtype=torch.int64, device=device)
    if is_one and right == 0 and not 0 <= left < kv_length - 1:  # a cache of fixed size, of which the last keys are not there yet
        return (queries[0] + 1 - kv_offset).clamp(0, kv_length).int().expand(1, 1, 1, batch_size).contiguous()
    if is_one:
        return _of_one_query(_seen(mask_function, batch_size, queries, keys, there))

    q_ids, k_ids = torch.zeros_like(queries), torch.zeros_like(keys)
    for each in same:  # three of these numbers fit into one
        q_ids, k_ids = (ids * 2**21 + (one & (2**21 - 1)) for ids, one in ((q_ids, each.of_queries), (k_ids, each.of_keys)))
    if right == 0:
        k_ids = torch.where(keys <= queries[:, -1:], k_ids, -1)  # a cache of fixed size has room for more
    for each in there:
        k_ids = torch.where(each, k_ids, -1)
    refused = torch.zeros((1, 1), dtype=torch.bool, device=device)
    behind = q_offset - kv_offset
    numbers = [torch.full((1, 1), each, device=device, dtype=torch.int64) for each in (MAGIC, left, right)]
    numbers.append(behind.reshape(1, 1).long() if isinstance(behind, torch.Tensor) else torch.full((1, 1), behind, device=device, dtype=torch.int64))
    parts = [*numbers, refused, q_ids, k_ids]
    for each in blocks:
        parts += [torch.full((1, 1), side, device=device, dtype=torch.int64) for side in (each.left, each.right)]
        parts += [each.ids[:, where[0]] for where in (queries, keys)]
    return torch.cat([each.long().expand(batch_size, -1) for each in parts], 1)[:, None, None]


def _seen(function, batch: int, queries, keys, there) -> torch.Tensor:
    """[batch, keys], whether the query of each sequence sees a key."""
    sequences = torch.arange(batch, device=keys.device)[:, None, None, None]
    seen = function(sequences, torch.zeros_like(sequences[:1]), queries[:, None, :, None], keys[:, None, None])[:, 0, 0]
    for each in there:
        seen = seen & each
    return seen.expand(batch, -1)


def _of_one_query(seen: torch.Tensor) -> torch.Tensor:
    batch, n_k = seen.shape
    numbers = torch.arange(max(batch, n_k), device=seen.device, dtype=torch.int32)
    seen_so_far = seen.cumsum(1, dtype=torch.int32)
    place = torch.where(seen, seen_so_far - 1, seen_so_far[:, -1:] + numbers[:n_k] - seen_so_far)
    order = torch.empty_like(place).scatter_(1, place.long(), numbers[:n_k].expand(batch, -1))
    return torch.cat([seen_so_far[:, -1], numbers[:batch], order.flatten()])[None, None, None]


def _narrower(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


class _Window(NamedTuple):
    left: int
    right: int


class _Same(NamedTuple):
    """A query sees keys of the same number."""

    of_queries: torch.Tensor  # [batch or 1, queries]
    of_keys: torch.Tensor


class _Packed(NamedTuple):
    """Positions follow each other in each sequence of a row."""


class _Remapped(NamedTuple):
    """Something was read with such positions."""


class _Padding(NamedTuple):
    there: torch.Tensor  # [batch, keys]


class _Blocks(NamedTuple):
    """A query sees what a window shows, and keys of its own number, if that is not below 0."""

    ids: torch.Tensor
    left: int = -1
    right: int = -1


def _read(function, queries, keys) -> list:
    """Its terms, all of which hold. A function of transformers' own is known by its name and place, and its numbers are in its closure."""
    name = "one's own"
    if isinstance(function, types.FunctionType) and function.__code__.co_filename == WHERE:
        # Of the code where it has that, from Python 3.11 on: not every torch.compile follows a function's own.
        name = getattr(function.__code__, "co_qualname", None) or function.__qualname__
        name = name.removesuffix(".<locals>.inner_mask")
    if name == "causal_mask_function":
        return [_Window(-1, 0)]
    if name == "bidirectional_mask_function":
        return []
    of = {} if name == "one's own" else dict(zip(function.__code__.co_freevars, [cell.cell_contents for cell in function.__closure__ or ()]))
    if name == "and_masks.<locals>.and_mask":
        return [term for each in of["mask_functions"] for term in _read(each, queries, keys)]
    if name == "or_masks.<locals>.or_mask":  # with blocks, which may be none
        terms = [_read(each, queries, keys) for each in of["mask_functions"]]
        blocks = [each[0] for each in terms if len(each) == 1 and isinstance(each[0], _Blocks)]
        others = [term for each in terms for term in each if not any(term is block for block in blocks)]
        if len(blocks) == 1 == len(terms) - 1 and all(isinstance(each, (_Window, _Remapped)) for each in others):
            left = right = -1
            for each in others:
                if isinstance(each, _Window):
                    left, right = _narrower(left, each.left), _narrower(right, each.right)
            return [_Blocks(blocks[0].ids, left, right), *(each for each in others if isinstance(each, _Remapped))]
        raise NotImplementedError("A mask is one function or another: no rung takes that yet." + OTHERWISE)
    if name == "sliding_window_overlay":
        return [_Window(of["sliding_window"] - 1, -1)]
    if name == "sliding_window_bidirectional_overlay":
        return [_Window(of["sliding_window"], of["sliding_window"])]
    if name == "chunked_overlay":
        begin = of["left_padding"][:, None].to(queries.device)
        return [_Same((queries - begin) // of["chunk_size"], (keys - begin) // of["chunk_size"])]
    if name == "blockwise_overlay":
        return [_Blocks(of["block_sequence_ids"])]
    if name == "padding_mask_function":
        return [_Padding(of["padding_mask"])]
    if name == "packed_sequence_mask_function":
        return [_Same(of["packed_sequence_mask"], of["packed_sequence_mask"]), _Packed()]
    if name == "remap_positions_for_packed_sequence":
        return [*_read(of["mask_function"], of["position_ids"], of["position_ids"]), _Remapped()]
    raise NotImplementedError("A mask by a function of one's own: no rung takes that yet." + OTHERWISE)


def _is_read_by_others(*tensors) -> bool:
    """Compiled, traced, or without numbers: what depends on numbers is the operator's."""
    return torch.compiler.is_compiling() or _torch._anyone_listens() or not _torch._are_plain(*tensors)


# ---- one layer ------------------------------------------------------------------------------------------------------


def attend(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: Optional[torch.Tensor], dropout: float = 0.0, scaling: Optional[float] = None,
    sliding_window: Optional[int] = None, softcap: Optional[float] = None, is_causal: Optional[bool] = None,
    s_aux: Optional[torch.Tensor] = None, **others,
):  # fmt: skip
    """Q, K, V: [batch, heads, n, d]; the result is [batch, n, heads, d]. That of a padded query is 0, or what it would see."""
    if dropout:
        raise NotImplementedError(f"dropout is {dropout}; no rung drops anything.\n  For inference: model.eval()")
    for name in ("position_bias", "block_table"):
        if others.get(name) is not None:
            raise NotImplementedError(f"{name}: no rung takes it.{OTHERWISE}")
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    batch, n_q, n_k = q.shape[0], q.shape[1], k.shape[1]
    softcap = softcap or 0.0
    code = None
    if attention_mask is None or attention_mask.ndim == 2:  # whoever makes no masks by transformers' functions
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        left, right = -1 if not sliding_window else sliding_window - causal, 0 if causal else sliding_window or -1
        if attention_mask is not None:
            code = _of_padding(attention_mask, n_q, n_k, left, right)
    elif attention_mask.ndim == 4 and attention_mask.dtype == torch.int32 and n_q == 1 and attention_mask.numel() in (batch, 2 * batch + batch * n_k):
        if torch.is_grad_enabled() and _torch.wants_gradients(q, k, v, s_aux):
            raise NotImplementedError("The mask was made without gradients, and the call wants some.\n  Both in torch.no_grad(), or neither")
        arguments = q, k, v, attention_mask, scaling, softcap, s_aux
        found = None if _is_read_by_others(q, k, v, attention_mask, s_aux) else _one_query(*arguments)
        return (torch.ops.flash_ladder.attend_one(*arguments) if found is None else found), None
    elif attention_mask.ndim == 4 and attention_mask.dtype == torch.int64 and attention_mask.shape[-1] == 0:
        left, right = attention_mask.shape[1] - 2, attention_mask.shape[2] - 2
    elif attention_mask.ndim == 4 and attention_mask.dtype == torch.int64 and attention_mask.shape[-1] in _lengths_of_codes(n_q, n_k):
        left = right = -1  # its numbers say it
        code = attention_mask
    else:
        raise NotImplementedError(f"A mask of the shape {list(attention_mask.shape)}, query by query: no rung takes that yet.\n"
                                  "  Padding: [batch, keys]. For this model: attn_implementation='sdpa'")  # fmt: skip
    causal, window = _causal_and_window(left, right)
    options = dict(causal=causal, scale=scaling, window=window, softcap=softcap, sink=s_aux)
    positions = None
    if code is None:
        ends_q, ends_k = (others.get(f"cu_seq_lens_{of}") for of in "qk")
        if ends_q is not None and ends_k is not None:
            packed = Packed(ends_q, ends_k, others.get("max_length_q") or n_q, others.get("max_length_k") or n_k)
            return attend_packed(q[0], k[0], v[0], packed, **options)[None], None
        positions = others.get("position_ids")
        if positions is not None and (positions.ndim != 2 or positions.shape[-1] != n_q or n_q != n_k or n_q < 2 or right != 0):
            positions = None
    if code is None and positions is None:
        return attention(q, k, v, **options), None
    wants_gradients = torch.is_grad_enabled() and _torch.wants_gradients(q, k, v, s_aux)
    if not _is_read_by_others(q, k, v, code, positions):
        meaning = _meaning(code, positions, batch, n_q, n_k, left, right)
        if meaning.pieces is None and meaning.intervals is None:
            causal, window = _causal_and_window(meaning.left, meaning.right)
            return attention(q, k, v, **{**options, "causal": causal, "window": window}), None
        if not wants_gradients:
            return _forward(q, k, v, meaning, scaling, softcap, s_aux, with_lse=False)[0], None
    out, _ = torch.ops.flash_ladder.attend(q, k, v, code, positions, left, right, scaling, softcap, s_aux, wants_gradients)
    return out, None


def _lengths_of_codes(n_q: int, n_k: int) -> tuple[int, int]:
    """Without blocks, and with some."""
    return HEADER + n_q + n_k, HEADER + OF_BLOCKS + 2 * (n_q + n_k)


def _causal_and_window(left: int, right: int) -> tuple:
    return right == 0, None if left < 0 and right <= 0 else (left, right)


def _of_padding(there: torch.Tensor, n_q: int, n_k: int, left: int, right: int) -> torch.Tensor:
    """A mask [batch, keys so far], of a layer of which it is known what else its queries see."""
    device, batch = there.device, there.shape[0]
    k_ids = F.pad(torch.where(there.bool(), 0, -1), (0, n_k - there.shape[1]), value=-1)
    header = torch.tensor([MAGIC, left, right, there.shape[1] - n_q, 0], device=device).expand(batch, -1)
    return torch.cat([header, torch.zeros((batch, n_q), dtype=torch.int64, device=device), k_ids], 1)[:, None, None]


# ---- one query of each sequence -------------------------------------------------------------------------------------


def _one_query(q, k, v, code: torch.Tensor, scale, softcap: float, sink, in_graph: bool = False) -> Optional[torch.Tensor]:
    """By a rung that reads caches; a sequence that does not see the first keys alone has them in pages of one key. None, and not in a graph:
    a tensor is one that the dispatcher has to see."""
    arrays, batch = library_of(q), q.shape[0]
    is_anew = in_graph or (code.is_cuda and torch.cuda.is_current_stream_capturing())  # in each replay
    if not _reads_caches(q.shape[-1], arrays.element(q), softcap, sink is not None, arrays.device(q)):
        return _in_several_lengths(q, k, v, code, scale, softcap, sink, is_anew)
    lengths, rows = code.view(-1), None
    if code.numel() > batch:
        k, v, step = _as_rows(k, v)
        k, v = k[:, None], v[:, None]
        lengths, rows = _rows_of(code, batch, step) if is_anew else _once(code, True, _rows_of, batch, step)
    cache = Cache(lengths, rows)
    arguments = q, k, v, True, scale, None, softcap, None, sink, False, None, None
    if in_graph:
        return _attention.run(*arguments, cache)
    found = _torch.again(*arguments, cache.kind, cache.given)
    return _torch._run(*arguments, cache) if found is None else found


@functools.lru_cache(maxsize=None)
def _reads_caches(d: int, element: str, softcap: float, has_sink: bool, device: int) -> bool:
    try:
        _native.plan(f"nq=1 nk=64 d={d} {element} {f'softcap={softcap:.9g}' * bool(softcap)} {'sink' * has_sink} pages=1", None, device, False)
    except (NotImplementedError, ValueError):
        return False
    return True


def _rows_of(code: torch.Tensor, batch: int, step: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """How many keys each sequence sees, and in which rows they are, where a sequence begins `step` rows behind the one before."""
    lengths, sequences, keys = code.view(-1).split([batch, batch, code.numel() - 2 * batch])
    return lengths, torch.add(keys.view(batch, -1), sequences[:, None], alpha=step)


def _in_several_lengths(q, k, v, code: torch.Tensor, scale, softcap: float, sink, in_graph: bool) -> torch.Tensor:
    """By a rung of texts of several lengths: of two for each sequence, where the first has no query and the keys that are not seen."""
    batch, n_k = k.shape[:2]
    lengths, sequences = code.view(-1)[:batch], torch.arange(batch, device=q.device, dtype=torch.int32)
    begins = torch.zeros_like(sequences)
    if code.numel() > batch:
        keys = code.view(-1)[2 * batch :].view(batch, n_k)
        if not in_graph and _once(code, True, _is_in_one_piece, batch):
            begins = keys[:, 0]
        else:
            k, v = (each[sequences[:, None], keys] for each in (k, v))
    k_rows, v_rows, step = _as_rows(k, v)
    begins = sequences * step + begins
    ends_k = F.pad(torch.stack([begins, begins + lengths], 1).flatten(), (1, 1))
    ends_k[-1:] = len(k_rows)
    ends_q = torch.arange(2 * batch + 2, device=q.device, dtype=torch.int32) // 2
    packed = Packed(ends_q, ends_k, 1, max(n_k, step))
    return _attention.run(q[:, 0], k_rows, v_rows, True, scale, None, softcap, None, sink, False, None, None, packed)[:, None]


def _is_in_one_piece(code: torch.Tensor, batch: int) -> bool:
    """A look at numbers."""
    lengths, keys = code.view(-1)[:batch, None], code.view(-1)[2 * batch :].view(batch, -1)
    ends = keys.gather(1, (lengths.long() - 1).clamp(min=0))
    return bool(((ends - keys[:, :1] + 1 == lengths) | (lengths == 0)).all())


def _kernel_of_one(q, k, v, code, scale, softcap, sink):
    return _one_query(q, k, v, code, scale, softcap, sink, in_graph=True)


def _fake_of_one(q, k, v, code, scale, softcap, sink):
    return q.new_empty(q.shape)


def _autograd_of_one(keyset, *arguments):
    _torch.refuse_tangents(arguments)
    return _torch.below_autograd(torch.ops.flash_ladder.attend_one.default, keyset, arguments)


# ---- from numbers to pieces: the rows of queries that see the same rows of keys ----------------------------------------


class Piece(NamedTuple):
    """Of a row of the batch; the last query is beside the last key, where a mask or a window says which it sees."""

    q_begin: int
    q_end: int
    k_begin: int
    k_end: int


class Meaning(NamedTuple):
    left: int
    right: int
    pieces: Optional[List[List[Piece]]]  # of each row, in order; None: each row is one
    intervals: Optional[MaskIntervals] = None  # all that it means, then


def _meaning(code, positions, batch: int, n_q: int, n_k: int, left: int, right: int) -> Meaning:
    if code is not None:
        return _once(code, True, _of_code, n_q, n_k)
    pieces = _once(positions, False, _of_positions)
    if pieces is not None and len(pieces) != batch:
        pieces = pieces * batch
    return Meaning(left, right, pieces)


def _of_code(code: torch.Tensor, n_q: int, n_k: int) -> Meaning:
    numbers = code[:, 0, 0].cpu().numpy()
    if len(numbers) == 0:
        return Meaning(-1, -1, None)
    magic, left, right, behind, is_refused = (int(each) for each in numbers[0, :HEADER])
    if magic != MAGIC:
        raise NotImplementedError("A mask of whole numbers that is none of ours: no rung takes that." + OTHERWISE)
    if is_refused:
        raise NotImplementedError(PICTURES)
    ids, blocks = np.split(numbers[:, HEADER:], [n_q + n_k], axis=1)
    if blocks.size:
        inner, blocks = blocks[0, :OF_BLOCKS].tolist(), blocks[:, OF_BLOCKS:]
        if (blocks[:, :n_q] >= 0).any():
            rows = [_interval_of_row(row, of_row, n_q, (left, right), inner, behind) for row, of_row in zip(ids, blocks)]
            return Meaning(-1, -1, None, MaskIntervals(*(torch.from_numpy(np.stack(each).astype(np.int32)).to(code.device) for each in zip(*rows))))
        left, right = _narrower(left, inner[0]), _narrower(right, inner[1])
    pieces = [_of_row(row[:n_q], row[n_q:], left, right, behind) for row in ids]
    return Meaning(left, right, None if all(each == [Piece(0, n_q, 0, n_k)] for each in pieces) else pieces)


def _interval_of_row(ids, blocks, n_q: int, outer, inner, behind: int) -> tuple:
    """The first key that each query sees, and the one behind the last: of its sequence those within `inner`, and those of its block; of all
    these those within `outer`."""
    own = np.arange(n_q) + behind

    def runs_of(numbers):
        """Of each query the keys of its number."""
        of_keys: dict = {}
        for begin, end, number in _runs(numbers[n_q:]):
            if number in of_keys:
                raise NotImplementedError("The mask has gaps within a sequence or a block; no rung takes that." + OTHERWISE)
            of_keys[number] = begin, end
        return np.array([of_keys.get(int(number), (0, 0)) for number in numbers[:n_q]]).T

    def within(first, end, sides):
        left, right = sides
        return (first if left < 0 else np.maximum(first, own - left)), (end if right < 0 else np.minimum(end, own + right + 1))

    sequence, block = runs_of(ids), runs_of(blocks)
    first, end = within(*sequence, inner)
    block_first, block_end = np.maximum(block[0], sequence[0]), np.minimum(block[1], sequence[1])
    has_block, has_others = block_first < block_end, first < end
    if (has_block & has_others & (np.maximum(first, block_first) > np.minimum(end, block_end))).any():
        raise NotImplementedError(PICTURES)
    first = np.where(has_block, np.where(has_others, np.minimum(first, block_first), block_first), first)
    end = np.where(has_block, np.where(has_others, np.maximum(end, block_end), block_end), end)
    return within(first, end, outer)


def _of_row(q_ids, k_ids, left: int, right: int, behind: int) -> List[Piece]:
    pieces, of_keys = [], {}
    for begin, end, number in _runs(k_ids):
        if number in of_keys:
            raise NotImplementedError("The mask has gaps within a sequence; no rung takes that.\n  Padding: left or right of it")
        if number >= 0:
            of_keys[number] = begin, end
    for q_begin, q_end, number in _runs(q_ids):
        k_begin, k_end = of_keys.get(number, (0, 0))
        if left >= 0 or right >= 0:
            # The last query has to be beside the last key. Keys behind it are seen by none, under a mask; queries behind it are padding.
            if k_end > q_end + behind and right != 0:
                raise NotImplementedError("A window from whose last query on there are more keys; no rung takes that." + OTHERWISE)
            k_end = min(k_end, q_end + behind)
            new_end = k_end - behind
            if k_begin < k_end and new_end < q_end and not all(0 <= i < len(k_ids) and k_ids[i] < 0 for i in range(new_end + behind, q_end + behind)):
                raise NotImplementedError("Queries behind the last key of their sequence, which are no padding; no rung takes that." + OTHERWISE)
            q_end = min(q_end, new_end)
            if right == 0:  # and those before the first one see none
                q_begin = max(q_begin, k_begin - behind)
        if k_begin < k_end and q_begin < q_end:
            pieces.append(Piece(q_begin, q_end, k_begin, k_end))
    if any(a.k_end > b.k_begin for a, b in zip(pieces, pieces[1:])):
        raise NotImplementedError("Sequences of a row do not follow each other; no rung takes that." + OTHERWISE)
    return pieces


def _runs(numbers) -> list:
    """Of the same number: begin, end, number. What is -1 is none."""
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    return [(begin, end, int(numbers[begin])) for begin, end in zip(cuts, cuts[1:]) if begin < end and numbers[begin] >= 0]


def _of_positions(positions: torch.Tensor) -> Optional[List[List[Piece]]]:
    """Where they begin anew, so does a sequence."""
    rows = positions.cpu().numpy()
    if (rows[:, 1:] == rows[:, :-1] + 1).all():
        return None
    pieces, n = [], rows.shape[1]
    for row in rows:
        begins = [0, *(np.flatnonzero(np.diff(row) != 1) + 1).tolist()]
        if len(begins) > 1 and any(row[begin] != 0 for begin in begins):
            raise NotImplementedError("Positions jump within a row; no rung takes that.\n  A row for each sequence, padded")
        pieces.append([Piece(begin, end, begin, end) for begin, end in zip(begins, [*begins[1:], n])])
    return pieces


# What was said of a tensor: a mask is the same one in all layers of a model.
_said = WeakTensorKeyDictionary()


def _once(tensor: torch.Tensor, is_ours: bool, say, *arguments):
    if torch.is_inference(tensor) and not is_ours:  # nobody would know that its numbers have changed
        return say(tensor, *arguments)
    said = _said.setdefault(tensor, {})
    key = (say, None if torch.is_inference(tensor) else tensor._version, *arguments)
    if key not in said:
        said[key] = say(tensor, *arguments)
    return said[key]


# ---- pieces, in one call of several lengths, or one by one ---------------------------------------------------------------


def _packed_of(pieces: List[List[Piece]], n_q: int, step: int, k_rows: int, device) -> Packed:
    """Padding belongs to sequences that have no queries, or no keys. `step`: rows of K from a row's first one to the next row's."""
    ends_q, ends_k = [0], [0]

    def until(q_end: int, k_end: int) -> None:
        ends_q.append(q_end)
        ends_k.append(k_end)

    for row, of_row in enumerate(pieces):
        q_here, k_here = row * n_q, row * step
        for piece in of_row:
            if k_here + piece.k_begin > ends_k[-1]:
                until(ends_q[-1], k_here + piece.k_begin)
            if q_here + piece.q_begin > ends_q[-1]:
                until(q_here + piece.q_begin, ends_k[-1])
            until(q_here + piece.q_end, k_here + piece.k_end)
    until(len(pieces) * n_q, ends_k[-1])
    until(ends_q[-1], k_rows)
    longest = [max(b - a for a, b in zip(ends, ends[1:])) for ends in (ends_q, ends_k)]
    both = torch.tensor([ends_q, ends_k], dtype=torch.int32).to(device, non_blocking=True)
    return Packed(both[0], both[1], *longest)


def _as_rows(k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Both as [rows, heads, d], and how many rows it is from a sequence's first one to the next sequence's. A cache lies as [batch, heads,
    n, d]: there these rows overlap, and nothing is copied."""
    batch, row = k.stride()[:2]
    if k.stride() != v.stride() or row == 0 or batch % row:
        return k.flatten(0, 1), v.flatten(0, 1), k.shape[1]  # copies, mostly
    step = batch // row
    size = ((k.shape[0] - 1) * step + k.shape[1], *k.shape[2:])
    return k.as_strided(size, k.stride()[1:]), v.as_strided(size, v.stride()[1:]), step


def _forward(q, k, v, meaning: Meaning, scale, softcap, sink, with_lse: bool) -> Tuple[torch.Tensor, Optional[torch.Tensor]]:
    """O, and LSE as [batch, heads, n] if it is wanted."""
    causal, window = _causal_and_window(meaning.left, meaning.right)
    if meaning.pieces is None:
        found = _attention.run(q, k, v, causal, scale, window, softcap, None, sink, with_lse, None, None, meaning.intervals)
        return found if with_lse else (found, None)
    batch, n_q, heads, _ = q.shape
    k_rows, v_rows, step = _as_rows(k, v)
    packed = _packed_of(meaning.pieces, n_q, step, len(k_rows), q.device)
    try:
        found = _attention.run(q.reshape(-1, *q.shape[2:]), k_rows, v_rows, causal, scale, window, softcap, None, sink, with_lse, None, None, packed)
    except NotImplementedError:  # by no rung in one call
        out = torch.zeros_like(q, memory_format=torch.contiguous_format)
        lse = torch.full((batch, heads, n_q), -torch.inf, device=q.device) if with_lse else None
        for row, of_q, of_k in _places(meaning.pieces):
            here = _attention.run(q[row, of_q], k[row, of_k], v[row, of_k], causal, scale, window, softcap, None, sink, with_lse, None, None, None)
            if with_lse:
                lse[row, :, of_q] = here[1]
            out[row, of_q] = here[0] if with_lse else here
        return out, lse
    if not with_lse:
        return found.view(q.shape), None
    return found[0].view(q.shape), found[1].view(heads, batch, n_q).transpose(0, 1).contiguous()


def _places(pieces: List[List[Piece]]):
    for row, of_row in enumerate(pieces):
        for piece in of_row:
            yield slice(row, row + 1), slice(piece.q_begin, piece.q_end), slice(piece.k_begin, piece.k_end)


def _check_gradients(q, k, v, meaning: Meaning, scale, softcap, sink) -> None:
    causal, window = _causal_and_window(meaning.left, meaning.right)
    options = causal, scale, window, softcap, None, sink, None
    deterministic = torch.are_deterministic_algorithms_enabled()
    try:
        if meaning.pieces is None:
            return _attention.check_gradients(q, k, v, *options, meaning.intervals, deterministic)
        n_k = k.shape[1]
        packed = _packed_of(meaning.pieces, q.shape[1], n_k, len(k) * n_k, q.device)
        try:
            _attention.check_gradients(*(each.reshape(-1, *each.shape[2:]) for each in (q, k, v)), *options, packed, deterministic)
        except NotImplementedError:
            for row, of_q, of_k in _places(meaning.pieces):
                _attention.check_gradients(q[row, of_q], k[row, of_k], v[row, of_k], *options, None, deterministic)
    except NotImplementedError as reason:
        raise NotImplementedError(f"A tensor asks for gradients. {reason}{_torch.WITHOUT}") from None


def _kernel(q, k, v, code, positions, left, right, scale, softcap, sink, with_lse):
    meaning = _meaning(code, positions, q.shape[0], q.shape[1], k.shape[1], left, right)
    if with_lse:
        _check_gradients(q, k, v, meaning, scale, softcap, sink)
    out, lse = _forward(q, k, v, meaning, scale, softcap, sink, with_lse)
    return out, q.new_empty(0, dtype=torch.float32) if lse is None else lse


def _fake(q, k, v, code, positions, left, right, scale, softcap, sink, with_lse):
    batch, n, heads, _ = q.shape
    return q.new_empty(q.shape), q.new_empty((batch, heads, n) if with_lse else (0,), dtype=torch.float32)


def _autograd(keyset, *arguments):
    _torch.refuse_tangents(arguments)
    if torch.is_grad_enabled() and _torch.wants_gradients(*arguments):
        return _Attend.apply(keyset, *arguments)
    return _torch.below_autograd(torch.ops.flash_ladder.attend.default, keyset, arguments)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(keyset, *arguments):
        return _torch.below_autograd(torch.ops.flash_ladder.attend.default, keyset, arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, q, k, v, code, positions, *ctx.options, sink, _ = inputs
        ctx.save_for_backward(q, k, v, code, positions, sink, *output)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, d_out, d_lse):
        q, k, v, code, positions, sink, out, lse = ctx.saved_tensors
        if d_out is None:
            return (None,) * 12
        *gradients, of_sink = torch.ops.flash_ladder.attend_backward(d_out, out, lse, q, k, v, code, positions, *ctx.options, sink)
        return (None, *gradients, *(None,) * 6, of_sink.to(sink.dtype) if ctx.needs_input_grad[10] else None, None)


def _backward_kernel(d_out, out, lse, q, k, v, code, positions, left, right, scale, softcap, sink):
    meaning = _meaning(code, positions, q.shape[0], q.shape[1], k.shape[1], left, right)
    causal, window = _causal_and_window(meaning.left, meaning.right)
    options, deterministic = (causal, scale, window, softcap, None, sink), torch.are_deterministic_algorithms_enabled()
    if meaning.pieces is None:
        return _attention.gradients(d_out, out, lse, q, k, v, *options, meaning.intervals, deterministic)
    batch, n_q, heads, _ = q.shape
    n_k = k.shape[1]
    packed = _packed_of(meaning.pieces, n_q, n_k, batch * n_k, q.device)
    rows = [each.reshape(-1, *each.shape[2:]) for each in (d_out, out, q, k, v)]
    try:
        of_rows = _attention.gradients(*rows[:2], lse.transpose(0, 1).reshape(heads, -1).contiguous(), *rows[2:], *options, packed, deterministic)
        return (*(each.view(like.shape) for each, like in zip(of_rows, (q, k, v))), of_rows[3])
    except NotImplementedError:
        results = [torch.zeros_like(each, memory_format=torch.contiguous_format) for each in (q, k, v)]
        results.append(_torch.empty_of_sink(q, sink).zero_())
        for row, of_q, of_k in _places(meaning.pieces):
            here = [d_out[row, of_q].contiguous(), out[row, of_q].contiguous(), lse[row, :, of_q].contiguous(), q[row, of_q], k[row, of_k], v[row, of_k]]
            *found, of_sink = _attention.gradients(*here, *options, None, deterministic)
            for result, place, one in zip(results, (of_q, of_k, of_k), found):
                result[row, place] = one
            results[3] += of_sink
        return tuple(results)


def _backward_fake(d_out, out, lse, q, k, v, *rest):
    return (*(each.new_empty(each.shape) for each in (q, k, v)), _torch.empty_of_sink(q, rest[-1]))


def _backward_autograd(keyset, *arguments):
    _torch.refuse_tangents(arguments)
    return _torch.below_autograd(torch.ops.flash_ladder.attend_backward.default, keyset, arguments)


_torch.operator("attend_one(Tensor q, Tensor k, Tensor v, Tensor code, Scalar? scale, Scalar softcap, Tensor? sink) -> Tensor",
                _kernel_of_one, _fake_of_one, _autograd_of_one)  # fmt: skip
# Both wait for numbers of the device, which no CUDA graph can do.
_OPTIONS = "Tensor? code, Tensor? positions, SymInt left, SymInt right, Scalar? scale, Scalar softcap, Tensor? sink"
_torch.operator(f"attend(Tensor q, Tensor k, Tensor v, {_OPTIONS}, bool with_lse) -> (Tensor, Tensor)", _kernel, _fake, _autograd, "cudagraph_unsafe")
_torch.operator(f"attend_backward(Tensor d_out, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor)",
                _backward_kernel, _backward_fake, _backward_autograd, "cudagraph_unsafe")  # fmt: skip
