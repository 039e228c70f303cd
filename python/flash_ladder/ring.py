"""Context parallelism: a sequence over many processes, each of which has a share of the queries and of the keys. K and V go round in a
ring while kernels run, and partial results meet by their log-sum-exp, in float32."""

from __future__ import annotations

import torch
import torch.distributed as dist

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
    size on all ranks."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    if q.shape[1] != k.shape[1] or q.shape[1] % 2:
        raise ValueError(f"q has {q.shape[1]} rows and k {k.shape[1]}; a share has two pieces of the same size.")
    half = q.shape[1] // 2
    out = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), -torch.inf, device=q.device)
    options = dict(scale=scale, rung=rung, return_lse=True)
    to, source = (dist.get_global_rank(group or dist.group.WORLD, (rank + step) % ranks) for step in (1, -1))
    keys = [k.contiguous(), v.contiguous()]
    for step in range(ranks):
        on_the_way, requests = [torch.empty_like(each) for each in keys], []
        if step + 1 < ranks:
            requests = dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, each, to, group) for each in keys]
                + [dist.P2POp(dist.irecv, each, source, group) for each in on_the_way]
            )
        owner = (rank - step) % ranks
        if not causal or owner == rank:
            merge(out, lse, *attend(q, *keys, causal=causal, **options))
        elif owner < rank:  # their first piece is before both of ours, their second one behind
            merge(out, lse, *attend(q, *(each[:, :half] for each in keys), **options))
        else:  # both of theirs are between ours
            merge(out[:, half:], lse[..., half:], *attend(q[:, half:], *keys, **options))
        for request in requests:
            request.wait()
        keys = on_the_way
    return (out.to(q.dtype), lse) if return_lse else out.to(q.dtype)


def merge(out: torch.Tensor, lse: torch.Tensor, other: torch.Tensor, other_lse: torch.Tensor) -> None:
    """Adds a partial result to another, in place: [batch, n, heads, d] and [batch, heads, n]. Rows without keys are none of either."""
    both = torch.logaddexp(lse, other_lse)
    # -inf - -inf is no number; such a row's weights are 0.
    of_one, of_other = (
        torch.where(each == -torch.inf, 0.0, (each - both).exp()).transpose(1, 2)[..., None] for each in (lse, other_lse)
    )
    out.mul_(of_one).add_(of_other * other)
    lse.copy_(both)
