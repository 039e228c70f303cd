"""Context parallelism: a sequence over many processes, each of which has a share of the queries and of the keys. K and V go round in a
ring while kernels run, and partial results meet by their log-sum-exp, in float32. On the way back dK and dV go round with them."""

from __future__ import annotations

import datetime
import time
from typing import Any, Iterator, NamedTuple

import torch
import torch.distributed as dist

from . import _attention, _native
from ._arrays import library_of
from ._attention import attention as attend
from ._torch import WITHOUT, has_changed, wants_gradients

__all__ = ["attention", "share"]


def share(x: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """A rank's share of a sequence: of 2 * ranks pieces the rank-th and the rank-th from the end, so that under a mask all have the
    same to do.

    Args:
        x: [batch, n, heads, d]; n is a multiple of 2 * ranks.
        rank: Whose.
        ranks: How many there are.

    Returns:
        [batch, n / ranks, heads, d].

    Raises:
        ValueError: n is no multiple of 2 * ranks.
    """
    pieces = x.chunk(2 * ranks, dim=1)
    if len(pieces) != 2 * ranks or x.shape[1] % (2 * ranks):
        raise ValueError(f"{x.shape[1]} rows cannot be shared by {ranks} ranks; they must be a multiple of {2 * ranks}.")
    return torch.cat([pieces[rank], pieces[-1 - rank]], dim=1)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, group: dist.ProcessGroup | None = None, *, causal: bool = True,
    scale: float | None = None, rung: str | None = None, return_lse: bool = False, timeout: float | None = None,
    deterministic: bool = False,
) -> Any:  # fmt: skip
    """attention() over the shares of all ranks of a group. Of gradients: all ranks ask for them, and all go backward.

    On GPUs nobody waits on the host: a stream waits for K and V.

    Args:
        q: This rank's share, [batch, n / ranks, heads, d], as share() makes it, of one size on all ranks.
        k: [batch, n / ranks, kv_heads, d], as q.
        v: [batch, n / ranks, kv_heads, d], as q.
        group: Of torch.distributed; None: all ranks.
        causal: A query sees the keys up to its own.
        scale: Of scores; None: 1 / sqrt(d).
        rung: The kernel's name; None: the last that takes it.
        return_lse: LSE is returned as well.
        timeout: Seconds, after which a rank that waits for another one gives up. On GPUs the host then waits for each pass, of
            which kernels that last longer than a pass see nothing. None: the group's own timeout ends the process.
        deterministic: Gradients have the same bits in each run.

    Returns:
        The result for this rank's queries, [batch, n / ranks, heads, d]; with return_lse a pair of it and LSE,
        [batch, heads, n / ranks] in float32.

    Raises:
        ValueError: The shares do not fit together.
        NotImplementedError: No kernel takes them, and why.
        RuntimeError: Another rank did not answer in time.
    """
    if q.shape[1] != k.shape[1] or q.shape[1] % 2:
        raise ValueError(f"q has {q.shape[1]} rows and k {k.shape[1]}; a share has two pieces of the same size.")
    options = Options(group, causal, scale, rung, timeout, deterministic or torch.are_deterministic_algorithms_enabled())
    if torch.is_grad_enabled() and wants_gradients(q, k, v):
        check_gradients(q, k, v, options)
        out, lse = _Ring.apply(q, k, v, options)
    else:
        out, lse = forward(q, k, v, options)
    return (out, lse) if return_lse else out


class Options(NamedTuple):
    group: dist.ProcessGroup | None
    causal: bool
    scale: float | None
    rung: str | None
    timeout: float | None
    deterministic: bool


class Part(NamedTuple):
    """What a rank computes in a step: some of its queries meet some of the keys that are there."""

    queries: slice
    keys: slice
    causal: bool


def parts(rows: int, causal: bool) -> tuple[Part, Part, Part]:
    """With a share's own keys, which with its queries are one sequence, in order; with keys of a rank before it, of which the first piece
    is before both of its own and the second one behind both; with keys of a rank behind it, both between its own."""
    every, first, second = slice(rows), slice(rows // 2), slice(rows // 2, rows)
    return Part(every, every, causal), Part(every, first if causal else every, False), Part(second if causal else every, every, False)


def steps(rows: int, rank: int, ranks: int, causal: bool) -> Iterator[Part]:
    own, before, behind = parts(rows, causal)
    for step in range(ranks):
        owner = (rank - step) % ranks  # of the keys that are here
        yield own if owner == rank else before if owner < rank else behind


def forward(q, k, v, options: Options):
    rank, ranks = dist.get_rank(options.group), dist.get_world_size(options.group)
    keys = [k.contiguous(), v.contiguous()]
    for step, part in enumerate(steps(q.shape[1], rank, ranks, options.causal)):
        passing = pass_on(keys if step + 1 < ranks else [], options.group)
        found, found_lse = attend(q[:, part.queries], *(each[:, part.keys] for each in keys), causal=part.causal, scale=options.scale,
                                  rung=options.rung, return_lse=True)  # fmt: skip
        if step == 0:
            # Sums of three parts and more stay in f32; two meet in f32 and are rounded once.
            out, lse = found.float() if ranks > 2 else found, found_lse
        else:
            merge(out[:, part.queries], lse[..., part.queries], found, found_lse)
        keys = passing.arrived(options.timeout)
    return out.to(q.dtype), lse


def backward(d_out, out, lse, q, k, v, options: Options):
    """Of q, k and v. A step's kernel is told the LSE and the O of the whole, so its weights are those of the whole, and what it gives are
    terms of sums. dQ stays where its queries are. dK and dV go round a step behind their keys, and then once more: they are at home."""
    rank, ranks = dist.get_rank(options.group), dist.get_world_size(options.group)
    keys, sums = [k.contiguous(), v.contiguous()], []
    d_q = torch.zeros(q.shape, device=q.device)
    for step, (rows, columns, causal) in enumerate(steps(q.shape[1], rank, ranks, options.causal)):
        keys_to_pass = keys if step + 1 < ranks else []
        passing = pass_on(keys_to_pass + sums, options.group)  # at once: a second kernel of NCCL's would find no SM
        terms = _attention.gradients(
            d_out[:, rows], out[:, rows], lse[..., rows].contiguous(), q[:, rows], *(each[:, columns] for each in keys),
            causal, options.scale, None, 0.0, None, None, None, options.deterministic,
        )  # fmt: skip
        arrived = passing.arrived(options.timeout)
        keys, sums = arrived[: len(keys_to_pass)], arrived[len(keys_to_pass) :]
        if step == 0:
            sums = [torch.zeros(each.shape, device=each.device) for each in (k, v)]
        for total, term in zip((d_q[:, rows], *(each[:, columns] for each in sums)), terms):
            total += term
    if ranks > 1:
        sums = pass_on(sums, options.group).arrived(options.timeout)
    return tuple(each.to(q.dtype) for each in (d_q, *sums))


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, options):
        out, lse = forward(q, k, v, options)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.options = options
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_out, d_lse):
        if d_lse is not None:
            raise NotImplementedError(f"A loss depends on LSE, and no rung has gradients of that.{WITHOUT}")
        q, k, v, out, lse = ctx.saved_tensors
        return *backward(d_out, out, lse, q, k, v, ctx.options), None


def check_gradients(q, k, v, options: Options) -> None:
    """The same on all ranks, whichever parts are theirs: or those that go on would wait for the others."""
    for part in parts(q.shape[1], options.causal):
        of_part = q[:, part.queries], k[:, part.keys], v[:, part.keys]
        try:
            _attention.check_gradients(*of_part, part.causal, options.scale, None, 0.0, None, None, options.rung, None, options.deterministic)
        except NotImplementedError as reason:
            raise NotImplementedError(f"A tensor asks for gradients. {reason}{WITHOUT}") from None


HEAD_START = 40_000  # clocks, 20 us


class Passing(NamedTuple):
    """Tensors on their way to the next rank, and those that come from the one before."""

    coming: list[torch.Tensor]
    requests: list[dist.Work]
    group: dist.ProcessGroup | None

    def arrived(self, timeout: float | None = None) -> list[torch.Tensor]:
        begin = time.monotonic()
        try:
            for request in self.requests:
                if timeout is not None and not self.coming[0].is_cuda:
                    request.wait(datetime.timedelta(seconds=timeout))
                    continue
                if timeout is not None:
                    wait_on_the_host(request, begin + timeout)
                request.wait()  # on a GPU, by the stream
        except RuntimeError as reason:
            to, source = neighbours(self.group)
            raise RuntimeError(
                f"Rank {dist.get_rank()} of the ring waited {time.monotonic() - begin:.0f} s, and gave up: rank {source} did not send its keys, or "
                f"rank {to} did not take those from here. A rank that says nothing like this stands still, or is dead.\n  {reason}"
            ) from reason
        return self.coming


def wait_on_the_host(request: dist.Work, until: float) -> None:
    """NCCL's own wait with a timeout aborts, and PyTorch's watchdog may end the process before anything is said."""
    while not request.is_completed():
        if time.monotonic() > until:
            raise RuntimeError("NCCL is still at it.")
        time.sleep(5e-5)


def neighbours(group) -> tuple[int, int]:
    """The next rank and the one before, as all processes number them."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    return tuple(dist.get_global_rank(group or dist.group.WORLD, (rank + step) % ranks) for step in (1, -1))


def pass_on(tensors: list[torch.Tensor], group=None) -> Passing:
    """Starts to send them to the next rank, and to receive those of the one before, of the same shapes."""
    if not tensors:
        return Passing([], [], group)
    to, source = neighbours(group)
    coming = [torch.empty_like(each) for each in tensors]
    sends = [dist.P2POp(dist.isend, each, to, group) for each in tensors]
    requests = dist.batch_isend_irecv(sends + [dist.P2POp(dist.irecv, each, source, group) for each in coming])
    if tensors[0].is_cuda:
        # NCCL copies by a kernel of its own, in another stream. Attention's blocks fill every SM to the last register until they end,
        # so that one has to have its few SMs before attention starts; blocks that they displace begin late.
        torch.cuda._sleep(HEAD_START)
    return Passing(coming, requests, group)


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
    _native.merge(problem, b"".join(layouts), addresses, out.dtype == torch.float32, device, arrays.stream(device), tensors)
    has_changed(out, lse)
