"""Context parallelism: a sequence over many processes, each of which has a share of the queries and of the keys. K and V go round in a
ring while kernels run, and partial results meet by their log-sum-exp, in float32."""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import _native
from ._arrays import library_of
from ._attention import attention as attend


def share(x: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's rows of [batch, n, heads, d]: of 2 * ranks pieces the rank-th and the rank-th from the end, so that under a mask all have
    the same to do."""
    pieces = x.chunk(2 * ranks, dim=1)
    if len(pieces) != 2 * ranks or x.shape[1] % (2 * ranks):
        raise ValueError(f"{x.shape[1]} rows cannot be shared by {ranks} ranks; they must be a multiple of {2 * ranks}.")
    return torch.cat([pieces[rank], pieces[-1 - rank]], dim=1)


def attention(q, k, v, group=None, *, causal=True, scale=None, rung=None, return_lse=False):
    """attention() over the shares of all ranks of a group: the result for this rank's queries. Shares are as share() makes them, of one
    size on all ranks. On GPUs nobody waits on the host: a stream waits for K and V."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if q.shape[1] != k.shape[1] or q.shape[1] % 2:
        raise ValueError(f"q has {q.shape[1]} rows and k {k.shape[1]}; a share has two pieces of the same size.")
    half = q.shape[1] // 2
    options = dict(scale=scale, rung=rung, return_lse=True)
    keys = [k.contiguous(), v.contiguous()]
    for step in range(ranks):
        if step + 1 < ranks:
            coming, requests = pass_on(keys, group)
        owner = (rank - step) % ranks  # of the keys that are here
        if step == 0:  # a share's own queries and keys are one sequence, in order
            out, lse = attend(q, *keys, causal=causal, **options)
            # Sums of three parts and more stay in f32; two meet in f32 and are rounded once.
            out = out.float() if ranks > 2 else out
        elif not causal:
            merge(out, lse, *attend(q, *keys, **options))
        elif owner < rank:  # their first piece is before both of ours, their second one behind
            merge(out, lse, *attend(q, *(each[:, :half] for each in keys), **options))
        else:  # both of theirs are between ours
            merge(out[:, half:], lse[..., half:], *attend(q[:, half:], *keys, **options))
        if step + 1 < ranks:
            for request in requests:
                request.wait()
            keys = coming
    out = out.to(q.dtype)
    return (out, lse) if return_lse else out


HEAD_START = 40_000  # clocks, 20 us


def pass_on(keys: list[torch.Tensor], group=None):
    """Starts to send them to the next rank, and to receive those of the one before: where these arrive, and what to wait for."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    to, source = (dist.get_global_rank(group or dist.group.WORLD, (rank + step) % ranks) for step in (1, -1))
    coming = [torch.empty_like(each) for each in keys]
    sends = [dist.P2POp(dist.isend, each, to, group) for each in keys]
    requests = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, each, source, group) for each in coming])
    if keys[0].is_cuda:
        # NCCL copies by a kernel of its own, in another stream. Attention's blocks fill every SM to the last register until they end,
        # so that one has to have its few SMs before attention starts; blocks that they displace begin late.
        torch.cuda._sleep(HEAD_START)
    return coming, requests


def merge(out: torch.Tensor, lse: torch.Tensor, other: torch.Tensor, other_lse: torch.Tensor) -> None:
    """Adds a partial result to another, in place: [batch, n, heads, d], in f32 or as `other`, and [batch, heads, n]. Rows without keys are
    none of either."""
    if out.dtype not in (torch.float32, other.dtype) or not lse.dtype == other_lse.dtype == torch.float32:
        raise TypeError(f"out is {out.dtype}, other {other.dtype}; out is float32, or as other. LSE is float32, here {lse.dtype}, {other_lse.dtype}.")
    arrays = library_of(out)
    batch, n, heads, d = other.shape
    problem = f"b={batch} h={heads} n={n} d={d} {arrays.element(other)}"
    layouts, tensors = [], (out, lse, other, other_lse)
    for name, tensor in zip(("O", "LSE", "other O", "other LSE"), tensors):
        of_batch, second, third = tensor.stride()[:3]
        strides = (of_batch, second, third) if tensor.ndim == 3 else (of_batch, third, second)  # of sequences, heads, rows
        extent = 1 + sum(stride * (size - 1) for stride, size in zip(tensor.stride(), tensor.shape))
        layouts.append(_native.layout(name, strides, extent * tensor.element_size(), written="other" not in name))
    device = arrays.device(out)
    addresses = [tensor.data_ptr() for tensor in tensors]
    _native.merge(problem, b"".join(layouts), addresses, out.dtype == torch.float32, device, arrays.stream(device))
