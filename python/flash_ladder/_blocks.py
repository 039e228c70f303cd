"""Lists of blocks of keys: what block_mask becomes."""

from __future__ import annotations

import sys
import weakref
from typing import Any, NamedTuple

import numpy as np

from ._arrays import is_of_torch

QUERIES, HALF = 128, 64  # of a block; and so many keys have a stencil
TOGETHER = 64  # blocks in part of which a mask is asked at a time: 128 x 128 pairs each


class BlockLists(NamedTuple):
    """Of each 128 queries the blocks of keys that they meet, as the kernel reads them. It stands where Packed does, and there is one of
    them."""

    lists: Any  # int32, [1 or batch, 1 or heads, tiles, most blocks, 2]: whole ones first, each block and its first stencil
    counts: Any  # int32, [.., .., tiles, 2]: how many, and how many of them whole
    order: Any  # int32, [.., .., tiles]: the longest list first
    stencils: Any  # int32, [any number, 128, 2]: a bit for each pair; the first hides all of them, the second none
    block_keys: int
    n_q: int
    n_k: int

    @property
    def tensors(self) -> dict[str, Any]:
        return dict(zip(self._fields, self.given))

    @property
    def given(self) -> tuple:
        return self[:4]

    @property
    def kind(self) -> tuple:
        return BlockLists, self.block_keys, *(tuple(each.shape) for each in self.given)

    appended = ()


def block_lists(block_mask, q, k, *, causal=False) -> BlockLists:
    """What attention() makes of block_mask, for calls that share a mask: made once, it is taken as it is.

    Args:
        block_mask: As attention() takes it.
        q: [batch, n_q, heads, d], or any array of that shape.
        k: [batch, n_k, kv_heads, d].
        causal: As in attention(), beside two index tensors.

    Returns:
        The lists, where q lies: for block_mask.

    Raises:
        ValueError: The mask does not fit, and why.
        TypeError: It is of the wrong type.
    """
    if isinstance(block_mask, BlockLists):
        return block_mask
    if not isinstance(q, np.ndarray) and not is_of_torch(q):
        raise NotImplementedError("block_mask: it is not handed on from this library yet.\n  By PyTorch or NumPy: flash_ladder.attention")
    n_q, n_k = int(q.shape[1]), int(k.shape[1])
    if _is_flex(block_mask):
        if causal:
            raise ValueError("block_mask is FlexAttention's, which says what is hidden, and causal=True says more.\n  In its mask_mod: and_masks")
        key = (n_q, n_k, q.device)
        kept = _kept.setdefault(block_mask, {})
        if key not in kept:
            kept[key] = _on(_of_flex(block_mask, n_q, n_k), q)
        return kept[key]
    if not isinstance(block_mask, (tuple, list)) or len(block_mask) != 2:
        raise TypeError(
            f"block_mask is a {type(block_mask).__qualname__}; it is FlexAttention's BlockMask, or a pair of int32 arrays: how many blocks of keys each "
            "128 queries meet, [batch, heads, tiles], and which, [batch, heads, tiles, blocks]."
        )
    counts, blocks = (_host(each) for each in block_mask)
    if counts.ndim != 3 or blocks.ndim != 4 or blocks.shape[:3] != counts.shape:
        raise ValueError(f"block_mask's arrays have the shapes {list(counts.shape)} and {list(blocks.shape)}; they must be [batch, heads, tiles] and "
                         "[batch, heads, tiles, blocks].")  # fmt: skip
    room = blocks.shape[3] * HALF
    keys = HALF if n_k > room - HALF and n_k <= room else QUERIES * max(-(-n_k // (blocks.shape[3] * QUERIES)), 1)
    none = np.zeros_like(counts), blocks[..., :0]
    on = np.arange(n_k - n_q, n_k) if causal else None  # of each query its own key
    return _on(_made((counts, blocks), none, n_q, n_k, keys, None, on), q)


_kept: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _is_flex(value) -> bool:
    flex = sys.modules.get("torch.nn.attention.flex_attention")
    return flex is not None and isinstance(value, flex.BlockMask)


def _host(array) -> np.ndarray:
    return array.detach().cpu().numpy() if is_of_torch(array) else np.asarray(array)


def _on(lists: BlockLists, q) -> BlockLists:
    if isinstance(q, np.ndarray):
        return lists
    torch = sys.modules["torch"]
    return lists._replace(**{name: torch.from_numpy(each).to(q.device) for name, each in lists.tensors.items()})


def _of_flex(mask, n_q: int, n_k: int) -> BlockLists:
    of_q, of_k = mask.BLOCK_SIZE
    if of_q != QUERIES or (of_k != HALF and of_k % QUERIES):
        raise ValueError(f"block_mask has blocks of {of_q} queries and {of_k} keys; the kernel takes 128 queries, and 64 keys or a multiple of 128.\n"
                         "  create_block_mask(..., BLOCK_SIZE=(128, 64))")  # fmt: skip
    lengths = getattr(mask, "seq_lengths", (n_q, n_k))
    if tuple(lengths) != (n_q, n_k) and tuple(-(-n // size) for n, size in zip(lengths, (of_q, of_k))) != (-(-n_q // of_q), -(-n_k // of_k)):
        raise ValueError(f"block_mask is of {lengths[0]} queries and {lengths[1]} keys, and q has {n_q} and k {n_k}.")
    part = _host(mask.kv_num_blocks), _host(mask.kv_indices)
    whole = np.zeros_like(part[0]), part[1][..., :0]
    if mask.full_kv_num_blocks is not None:
        whole = _host(mask.full_kv_num_blocks), _host(mask.full_kv_indices)
    torch, device = sys.modules["torch"], mask.kv_indices.device

    def sees(sequence, head, query, key):
        at = (torch.from_numpy(each).to(device) for each in (sequence, head, query, key))
        return torch.broadcast_to(mask.mask_mod(*at), np.broadcast_shapes(query.shape, key.shape)).cpu().numpy()

    return _made(whole, part, n_q, n_k, of_k, sees, None)


def _made(whole, part, n_q: int, n_k: int, block_keys: int, sees, own_keys) -> BlockLists:
    """Of counts and blocks, those that are whole and those in part. `sees`: a mask of sequences, heads, queries and keys, where a
    block is in part. `own_keys`: or a causal mask everywhere."""
    batch, heads, tiles = whole[0].shape
    most = max(-(-n_k // block_keys), 1)
    if tiles != -(-n_q // QUERIES):
        raise ValueError(f"block_mask has lists of {tiles} times 128 queries; q has {n_q} queries, which are {-(-n_q // QUERIES)}.")
    lists = np.full((batch, heads, tiles, most, 2), -1, np.int32)
    counts = np.zeros((batch, heads, tiles, 2), np.int32)
    asked = []  # blocks in part: where in the lists, and whether the mask is asked
    for at in np.ndindex(batch, heads, tiles):
        met = [[int(block) for block in blocks[at][: counted[at]]] for counted, blocks in (whole, part)]
        both = met[0] + met[1]
        if len(set(both)) < len(both) or not all(0 <= block < most for block in both):
            raise ValueError(f"block_mask's list of sequence {at[0]}, head {at[1]} and the queries from {at[2] * QUERIES} on is {both}; each block "
                             f"stands there once, and k has {most}, of {block_keys} keys.")  # fmt: skip
        if own_keys is not None:
            last, first = int(own_keys[min((at[2] + 1) * QUERIES, n_q) - 1]), int(own_keys[at[2] * QUERIES])
            met = [[block for block in each if block * block_keys <= last] for each in met]
        is_cut = [(block + 1) * block_keys > (n_k if own_keys is None else first + 1) for block in met[0]]
        rest = [block for block, cut in zip(met[0], is_cut) if not cut]
        parts = [(block, False) for block, cut in zip(met[0], is_cut) if cut] + [(block, True) for block in met[1]]
        for place, block in enumerate(rest):
            lists[(*at, place)] = block, 1
        for place, (block, asks) in enumerate(parts, len(rest)):
            lists[(*at, place)] = block, 0
            asked.append((*at, place, block, asks))
        counts[at] = len(rest) + len(parts), len(rest)
    stencils, known = [np.zeros((1, QUERIES, 2), np.int32), np.full((1, QUERIES, 2), -1, np.int32)], {}
    total = 2
    for begin in range(0, len(asked), TOGETHER):
        some = np.array(asked[begin : begin + TOGETHER])
        query = some[:, 2, None, None] * QUERIES + np.arange(QUERIES)[:, None]
        key = some[:, 4, None, None] * block_keys + np.arange(block_keys)
        seen = np.broadcast_to(key < n_k, (len(some), QUERIES, block_keys)).copy()
        query, key = np.minimum(query, n_q - 1), np.minimum(key, n_k - 1)
        if own_keys is not None:
            seen &= key <= own_keys[query]
        if (asks := some[:, 5].astype(bool)).any():
            seen[asks] &= sees(some[asks, 0, None, None], some[asks, 1, None, None], query[asks], key[asks])
        bits = np.packbits(seen.reshape(len(some), QUERIES, -1, HALF), axis=-1, bitorder="little").swapaxes(1, 2)
        for place, each in zip(some[:, :4], np.ascontiguousarray(bits)):
            if (number := known.get(text := each.tobytes())) is None:
                number = known[text] = total
                stencils.append(np.frombuffer(text, np.int32).reshape(-1, QUERIES, 2))
                total += len(stencils[-1])
            lists[(*place, 1)] = number
    order = np.argsort(-counts[..., 0], axis=-1, kind="stable").astype(np.int32)
    return BlockLists(lists, counts, order, np.concatenate(stencils), block_keys, n_q, n_k)
