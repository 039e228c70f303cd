"""One sequence over several GPUs: tokens per second of our ring, of K and V gathered before one kernel, and of PyTorch's context_parallel, in
turns with one card alone, forward and backward; and what each kernel of one call did when, by rank.
    torchrun --nproc-per-node 4 python/measure/ring.py --out FOLDER [--cards 2 4] [--tokens 131072] [--backward 32768] [--limit SECONDS]
Where a rank dies, torchrun ends the others; where one only stands still, those that wait for it end after a timeout."""

from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import functools
import json
import os
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import flash_ladder
import flash_ladder.ring
import torch
import torch.distributed as dist
import torch.nn.functional as F
from flash_ladder.ring import share

warnings.simplefilter("ignore")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no multicast: it can put the cards of a host that others share out of service
os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000")  # four of these pass before a timeout ends the process, 15 s each otherwise
TIMEOUT = 25  # seconds, of a pass of the ring; of everything else that ranks do together twice as much
D, ELEMENT_BYTES = 128, 2
MOST_ROUNDS, FEWEST_ROUNDS = 9, 3
KERNELS, PASS = ("flash_attention", "gradients"), "nccl"  # in the names of kernels
HEAD_START = 2_000_000  # clocks, a millisecond: the host has asked for everything when the first kernel starts, as in a model
BEGAN = time.monotonic()


class Ranks:
    """This process among the others. What they tell each other on the host goes over gloo, beside what is measured."""

    def __init__(self, device: str, seconds: float):
        self.on_gpu = device == "cuda"
        local = int(os.environ.get("LOCAL_RANK", 0))
        self.device = torch.device(device, local) if self.on_gpu else torch.device(device)
        if self.on_gpu:
            torch.cuda.set_device(self.device)
        timeout = datetime.timedelta(seconds=seconds)
        dist.init_process_group("nccl" if self.on_gpu else "gloo", timeout=timeout)
        self.host = dist.new_group(backend="gloo", timeout=timeout)
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.timeout = timeout

    def all(self, value) -> list:
        """What each rank says."""
        values = [None] * self.count
        dist.all_gather_object(values, value, group=self.host)
        return values

    def say(self, *words) -> None:
        if self.rank == 0:
            print(f"{time.monotonic() - BEGAN:6.1f} s ", *words, flush=True)

    def wait(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def milliseconds(self, call) -> float:
        """Of this rank; all begin together."""
        self.wait()
        dist.barrier(group=self.host)
        if not self.on_gpu:
            begin = time.perf_counter()
            call()
            return (time.perf_counter() - begin) * 1e3
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(HEAD_START)
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


class Cards(NamedTuple):
    """Ranks that share a sequence, this one among them. The others do the same, as many at a time, so that all cards are as warm."""

    group: dist.ProcessGroup | None
    rank: int
    count: int


def cards(ranks: Ranks, count: int) -> Cards:
    if ranks.count % count:
        sys.exit(f"{ranks.count} ranks are no multiple of {count}")
    groups = [None]
    if count < ranks.count:
        firsts = range(0, ranks.count, count)
        groups = [dist.new_group(list(range(first, first + count)), timeout=ranks.timeout) for first in firsts]  # everybody makes all of them
    return Cards(groups[ranks.rank // count], ranks.rank % count, count)


class Problem:
    """A sequence: whole, the same on all ranks, and shares of it."""

    def __init__(self, ranks: Ranks, n: int, heads: int, kv_heads: int, causal: bool, backward: bool):
        self.ranks, self.n, self.heads, self.kv_heads, self.causal, self.backward = ranks, n, heads, kv_heads, causal, backward
        generator = torch.Generator(ranks.device).manual_seed(n)
        of_tensors = (heads, kv_heads, kv_heads, heads)[: 3 + backward]  # Q, K, V and dO
        self.whole = [torch.randn(1, n, h, D, generator=generator, device=ranks.device, dtype=torch.bfloat16) for h in of_tensors]
        self.open = contextlib.ExitStack()  # what lasts as long as it is measured

    def __str__(self) -> str:
        return f"n={self.n} {'causal' if self.causal else 'dense'}{' backward' * self.backward}"

    @functools.cache
    def share(self, of: Cards) -> list[torch.Tensor]:
        return [share(each, of.rank, of.count) for each in self.whole]

    def call(self, attend, inputs: list[torch.Tensor]):
        """attend() of q, k and v, or the backward pass alone, of what one forward pass has left."""
        if not self.backward:
            return lambda: attend(*inputs)
        *inputs, d_out = inputs
        inputs = [each.detach().requires_grad_() for each in inputs]
        with torch.enable_grad():
            out, _ = attend(*inputs)
        return lambda: torch.autograd.grad(out, inputs, d_out, retain_graph=True)

    def flops(self) -> float:
        products = 5 if self.backward else 2
        return products * 2 * self.heads * self.n**2 * D / (2 if self.causal else 1)

    def sent(self, name: str, count: int) -> int | str:
        """Bytes that a rank sends: K and V, and on the way back dK and dV in f32. PyTorch's are not computed."""
        passes = {"one": 0, "pass": 1}.get(name, "" if name.startswith("cp_") else count - 1)
        if passes == "":
            return ""
        elements = 2 * self.n // count * self.kv_heads * D
        of_sums = 0 if name == "one" or not self.backward else passes if name == "pass" else count
        return elements * (passes * ELEMENT_BYTES + of_sums * 4)


def one(problem: Problem, of: Cards):
    """The whole sequence on a card alone, on each of them at the same time."""
    return problem.call(functools.partial(flash_ladder.attention, causal=problem.causal, return_lse=True), problem.whole)


def ring(problem: Problem, of: Cards, timeout: float | None = None):
    attend = functools.partial(flash_ladder.ring.attention, group=of.group, causal=problem.causal, return_lse=True, timeout=timeout)
    return problem.call(attend, problem.share(of))


def with_timeout(problem: Problem, of: Cards):
    """The ring, whose host waits for each pass."""
    return ring(problem, of, timeout=TIMEOUT)


def pass_alone(problem: Problem, of: Cards):
    """What a step of the ring sends, with no kernel beside it."""
    keys = problem.share(of)[1:3]
    sums = [each.float() for each in keys] if problem.backward else []
    return lambda: flash_ladder.ring.pass_on(keys + sums, of.group).arrived()


def gather(problem: Problem, of: Cards):
    """All keys to every rank, and then one kernel; under a mask one for each piece of the queries, over the keys up to its end."""
    piece = problem.n // (2 * of.count)

    def call():
        gathered = []
        for each in problem.share(of)[1:]:
            parts = each.new_empty(of.count * each.shape[0], *each.shape[1:])
            dist.all_gather_into_tensor(parts, each, group=of.group)
            pieces = [part.chunk(2, dim=1) for part in parts.chunk(of.count)]
            gathered.append(torch.cat([first for first, _ in pieces] + [second for _, second in reversed(pieces)], dim=1))
        q, (k, v) = problem.share(of)[0], gathered
        if not problem.causal:
            return flash_ladder.attention(q, k, v, return_lse=True)
        ends = (of.rank + 1) * piece, (2 * of.count - of.rank) * piece
        found = [
            flash_ladder.attention(part, k[:, :end], v[:, :end], causal=True, return_lse=True) for part, end in zip(q.chunk(2, dim=1), ends)
        ]
        return torch.cat([out for out, _ in found], dim=1), torch.cat([lse for _, lse in found], dim=2)

    return call


def engine(problem: Problem, of: Cards):
    """The ring, but keys come from their owners by a copy engine, which needs no SM. They are shared by CUDA's IPC, once and beforehand."""
    from torch.multiprocessing.reductions import reduce_tensor

    ranks, stream, keys_here = problem.ranks, torch.cuda.Stream(), problem.share(of)[1:]
    shared = ranks.all([reduce_tensor(each) for each in keys_here])
    of_others = [[rebuild(*arguments) for rebuild, arguments in shared[(of.rank - step) % of.count]] for step in range(1, of.count)]
    token = torch.zeros(1, device=ranks.device)

    class Arrival:
        def wait(self):
            torch.cuda.current_stream().wait_stream(stream)

    def call():
        steps = iter(of_others)

        def fetch(keys, group=None):
            if not keys:
                return flash_ladder.ring.Passing([], [], group)
            if keys[0].data_ptr() == keys_here[0].data_ptr():
                dist.all_reduce(token)  # all owners have theirs
            coming = [torch.empty_like(each) for each in keys]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for to, source in zip(coming, next(steps)):
                    to.copy_(source, non_blocking=True)
            return flash_ladder.ring.Passing(coming, [Arrival()], group)

        pass_on, flash_ladder.ring.pass_on = flash_ladder.ring.pass_on, fetch
        try:
            return flash_ladder.ring.attention(*problem.share(of), causal=problem.causal, return_lse=True)
        finally:
            flash_ladder.ring.pass_on = pass_on

    return call


def context_parallel(backend: str):
    """PyTorch's, which patches scaled_dot_product_attention, with its own balance of load under a mask, and grouped heads."""

    def of_problem(problem: Problem, of: Cards):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel as parallel
        from torch.distributed.tensor.experimental._attention import _cp_options
        from torch.nn.attention import SDPBackend, sdpa_kernel

        mesh = init_device_mesh(problem.ranks.device.type, (of.count,))
        buffer = torch.empty(1, 1, 2 * of.count, 1, device=problem.ranks.device)  # it insists on one to share
        _cp_options.enable_load_balance = problem.causal
        problem.open.enter_context(parallel(mesh, buffers=[buffer], buffer_seq_dims=[2], no_restore_buffers={buffer}))

        def made(repeat: int):
            inside = repeat if problem.backward else 1  # where dK and dV of repeated heads have to meet again

            def attend(q, k, v):
                k, v = (each.repeat_interleave(inside, 2) if inside > 1 else each for each in (k, v))
                q, k, v = (each.transpose(1, 2) for each in (q, k, v))
                with sdpa_kernel(getattr(SDPBackend, backend)):
                    out = F.scaled_dot_product_attention(q, k, v, is_causal=problem.causal, enable_gqa=q.shape[1] != k.shape[1])
                return out.transpose(1, 2), None

            shares = problem.share(of)
            if repeat > inside:
                shares = [each.repeat_interleave(repeat, 2) if i in (1, 2) else each for i, each in enumerate(shares)]
            return problem.call(attend, [each.transpose(1, 2).contiguous().transpose(1, 2) for each in shares])

        try:
            call = made(1)
            call()
            return call
        except Exception as reason:
            problem.ranks.say(f"{backend}: each head of queries gets keys of its own: {type(reason).__name__}: {str(reason)[:300]}")
            return made(problem.heads // problem.kv_heads)

    return of_problem


KNOWN = {
    "one": one, "ring": ring, "timeout": with_timeout, "gather": gather, "pass": pass_alone, "engine": engine,
    "cp_flash": context_parallel("FLASH_ATTENTION"), "cp_cudnn": context_parallel("CUDNN_ATTENTION"),
}  # fmt: skip
FOR_FEWER = ("one", "ring", "gather", "pass")  # the others are measured with all cards
FORWARD_ONLY = ("gather", "engine")


ROWS_BESIDE = 64  # gradients of one row may cancel each other


def unlike(found: torch.Tensor, wanted: torch.Tensor, beside: int = 1) -> float:
    """How far a tensor is from another, [batch, n, heads, d]: norm over norm, the largest of so many rows of a head."""
    found, wanted = (each.float().unflatten(1, (-1, beside)) for each in (found, wanted))
    apart = (found - wanted).norm(dim=(2, 4)) / wanted.norm(dim=(2, 4))
    return apart.max().item() if torch.isfinite(apart).all() else float("inf")


Errors = tuple[float, float, float, float, float]  # of O, LSE, dQ, dK and dV; -1: there is none


def errors_of(found: tuple, wanted: tuple, backward: bool) -> Errors:
    if backward:
        return (-1.0, -1.0, *(unlike(each, right, ROWS_BESIDE) for each, right in zip(found, wanted)))
    of_lse = -1.0 if found[1] is None else (found[1] - wanted[1]).abs().max().item()
    return (unlike(found[0], wanted[0]), of_lse, -1.0, -1.0, -1.0)


def check(problem: Problem, calls: dict) -> dict[tuple, Errors]:
    """The contestants that agree with one card, and how well; the others are taken out of `calls`."""
    ranks, errors = problem.ranks, {}
    whole = calls["one", 1][0]()
    for key in list(calls):
        call, of = calls[key]
        if key[0] in ("one", "pass"):
            call()
            continue
        if problem.backward:
            wanted = tuple(share(each, of.rank, of.count) for each in whole)
        else:
            wanted = share(whole[0], of.rank, of.count), share(whole[1].transpose(1, 2), of.rank, of.count).transpose(1, 2)
        try:
            error, words = errors_of(call(), wanted, problem.backward), ""
            ranks.wait()
        except Exception as reason:  # one that cannot is left out, the others go on
            error, words = (float("inf"),) * 5, f"{type(reason).__name__}: {str(reason)[:500]}\n{traceback.format_exc()[-700:]}"
        of_all = ranks.all((error, words))
        errors[key] = tuple(map(max, zip(*(each for each, _ in of_all))))
        # Rounding of bf16 is 2^-9 of a number at most, and partial results are rounded twice; a row is 128 numbers.
        if max(errors[key][0], *errors[key][2:]) > 2**-6 or errors[key][1] > 1e-3:
            ranks.say(f"{problem}: {key} is left out: O, LSE, dQ, dK, dV differ by {errors[key]}", *(words for _, words in of_all if words))
            del calls[key]
    return errors


def timeline(ranks: Ranks, call) -> list[dict]:
    """Each kernel of one call on this rank: its name, stream, begin and end in microseconds of the host's clock."""
    from torch.profiler import ProfilerActivity, profile

    ranks.wait()
    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as profiler:
        ranks.wait()
        dist.barrier(group=ranks.host)
        torch.cuda._sleep(HEAD_START)
        call()
        ranks.wait()
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/trace.json"
        profiler.export_chrome_trace(path)
        trace = json.loads(Path(path).read_text())
    base = trace.get("baseTimeNanoseconds", 0) / 1e3
    kernels = [
        {"name": short(event["name"]), "stream": event["args"].get("stream"), "begin": base + event["ts"], "end": base + event["ts"] + event["dur"]}
        for event in trace["traceEvents"] if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]  # fmt: skip
    return sorted(kernels, key=lambda kernel: kernel["begin"])[1:]  # behind the head start


def short(name: str) -> str:
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return name.partition("(")[0][:48]


def shares_of(kernels: list[dict]) -> dict[str, float]:
    """Of the time from the first kernel to the end of the last one: how much the kernel runs; of the passes, how much beside it."""
    ours, passes = ([(k["begin"], k["end"]) for k in kernels if any(word in k["name"] for word in words)] for words in (KERNELS, (PASS,)))
    if not ours:
        return {"kernel_share": "", "pass_beside_kernel": ""}
    whole = max(k["end"] for k in kernels) - min(k["begin"] for k in kernels)
    beside = sum(max(0.0, min(end, e) - max(begin, b)) for begin, end in passes for b, e in ours)
    passing = sum(end - begin for begin, end in passes)
    return {"kernel_share": round(sum(end - begin for begin, end in ours) / whole, 4), "pass_beside_kernel": round(beside / passing, 4) if passing else ""}


@functools.cache
def nvlink_counter(ranks: Ranks):
    """What says how many bytes this rank's card has sent over NVLink until now; None where nobody counts."""
    try:
        import pynvml

        pynvml.nvmlInit()
        card = pynvml.nvmlDeviceGetHandleByIndex(ranks.device.index)

        def sent() -> int:
            value = pynvml.nvmlDeviceGetFieldValues(card, [(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 0xFFFFFFFF)])[0]
            if value.nvmlReturn:
                raise OSError(f"NVML: {value.nvmlReturn}")
            return value.value.ullVal * 1024

        sent()
        return sent
    except Exception as reason:
        ranks.say(f"NVLink is not counted: {type(reason).__name__} {reason}")
        return None


def look(problem: Problem, name: str, call, of: Cards, out: Path) -> dict:
    """One more call, of which every kernel's time is kept, and the bytes that NVLink counts."""
    ranks = problem.ranks
    count = nvlink_counter(ranks)
    before = count() if count else None
    try:
        kernels = timeline(ranks, call)
    except Exception as reason:
        kernels = []
        print(f"rank {ranks.rank}: no timeline: {type(reason).__name__}: {reason}", flush=True)
    sent = ranks.all(count() - before if count else None)
    found = {"nvlink_bytes": "" if None in sent else max(sent)}
    of_all = ranks.all(kernels)[: of.count]  # of the first that share a sequence
    if not all(of_all):
        return found
    begin = min(each[0]["begin"] for each in of_all)
    for kernel in (kernel for each in of_all for kernel in each):
        kernel["begin"], kernel["end"] = (round(kernel[key] - begin, 1) for key in ("begin", "end"))
    if ranks.rank == 0:
        told = {"contestant": name, "cards": of.count, "direction": "backward" if problem.backward else "forward", "n": problem.n, "causal": problem.causal}
        path = out / f"timeline_{name}_{of.count}_{str(problem).replace(' ', '_').removeprefix('n=')}.json"
        path.write_text(json.dumps({**told, "us": of_all}))
    return found | min((shares_of(each) for each in of_all), key=lambda shares: shares["kernel_share"] or 0)


def measure(problem: Problem, names: list[str], shared_by: list[Cards], seconds: float, seen: bool, out: Path, told: dict) -> list[dict]:
    """Rows of the contestants that are right. `seen`: of each one call is recorded, kernel by kernel."""
    ranks, alone = problem.ranks, Cards(None, 0, 1)
    text = f"h={problem.heads} kv={problem.kv_heads} n={problem.n} d={D} bf16{' causal' * problem.causal}"
    asked = flash_ladder.why(f"backward {text}" if problem.backward else text, lse=not problem.backward, device=ranks.device.index)
    calls = {}  # of a contestant and its number of cards: what is called, and with whom
    for name, of in [("one", alone), *((name, of) for name in names if name != "one" for of in shared_by)]:
        if (of.count < ranks.count and name not in FOR_FEWER) or (problem.backward and name in FORWARD_ONLY):
            continue
        try:
            calls[name, of.count] = KNOWN[name](problem, of), of
        except Exception as reason:
            ranks.say(f"{problem}: {name} is left out: {type(reason).__name__}: {reason}")
    calls = {key: call for key, call in calls.items() if all(ranks.all(key in calls))}
    errors = check(problem, calls)  # and everybody is warm
    for key, each in errors.items():
        ranks.say(f"{problem}: {key} from one card:", *(f"{what} {error:.1e}" for what, error in zip(("O", "LSE", "dQ", "dK", "dV"), each) if error >= 0))
    times: dict[tuple, list[float]] = {key: [] for key in calls}  # of a round: the faster ones of those that share, until the slowest of them is done
    of_each_card = []
    order, rounds, number = list(calls), MOST_ROUNDS, 0
    while number < rounds:
        for key in order:
            of_ranks = ranks.all(ranks.milliseconds(calls[key][0]))
            of_each_card += [of_ranks] * (key[0] == "one")
            times[key].append(min(max(of_ranks[first : first + key[1]]) for first in range(0, ranks.count, key[1])))
        order = order[1:] + order[:1]
        number += 1
        if number == 1:
            of_a_round = sum(each[0] for each in times.values()) / 1e3
            rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(seconds / of_a_round)))
            rounds = min(ranks.all(rounds))
    rows = []
    for key, ms in times.items():
        name, count = key
        middle = statistics.median(ms)
        ratios = [a / b for a, b in zip(times["one", 1], ms)] if name != "pass" else []
        row = {
            **told, "ranks": count, "contestant": name, "direction": "backward" if problem.backward else "forward",
            "rung": "" if name == "pass" or name.startswith("cp_") else asked.rung, "batch": 1, "heads": problem.heads, "kv_heads": problem.kv_heads,
            "n": problem.n, "d": D, "dtype": "bf16", "causal": int(problem.causal), "rounds": len(ms), "ms_median": round(middle, 4),
            "ms_least": round(min(ms), 4), "ms_most": round(max(ms), 4),
            "tokens_per_s": round(problem.n / middle * 1e3) if ratios else "",
            "tflops_per_card": round(problem.flops() / middle / 1e9 / count, 1) if ratios else "",
            **{f"over_one{end}": round(of(ratios), 4) if ratios else "" for end, of in (("", statistics.median), ("_least", min), ("_most", max))},
            "sent_bytes": problem.sent(name, count), "nvlink_bytes": "", "kernel_share": "", "pass_beside_kernel": "",
            **{f"error_{what}": f"{error:.1e}" if error >= 0 else "" for what, error in zip(("o", "lse", "dq", "dk", "dv"), errors.get(key, (-1,) * 5))},
        }  # fmt: skip
        if seen and ranks.on_gpu and name not in ("one", "pass"):
            row |= look(problem, name, *calls[key], out)
        rows.append(row)
        ranks.say(f"{problem}: {name}, {count} cards, {middle:.3f} ms [{min(ms):.3f}, {max(ms):.3f}],", f"over one {row['over_one']} [{row['over_one_least']}, {row['over_one_most']}],",
                  f"kernel {row['kernel_share']}, beside {row['pass_beside_kernel']}, NVLink {row['nvlink_bytes']} of {row['sent_bytes']}, {len(ms)} rounds")  # fmt: skip
    ranks.say(f"{problem}: one card, each: {[round(statistics.median(each), 3) for each in zip(*of_each_card)]} ms")
    return rows


def contestant(text: str) -> tuple[str, int | None]:
    """RING or RING@TOKENS."""
    name, _, tokens = text.partition("@")
    if name not in KNOWN:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(KNOWN)}")
    return name, int(tokens) if tokens else None


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for ring.csv, to which rows are added, and for timelines")
    parser.add_argument("--cards", type=int, nargs="+", help="how many share a sequence; otherwise all")
    parser.add_argument("--tokens", type=int, nargs="*", default=[131072, 524288, 32768, 65536, 262144], help="forward")
    parser.add_argument("--backward", type=int, nargs="*", default=[], help="tokens, of which the backward pass is measured")
    parser.add_argument("--look", type=int, nargs="*", default=[131072], help="tokens, of which one call of each is recorded")
    parser.add_argument("--masks", nargs="+", choices=("causal", "dense"), default=["causal", "dense"])
    parser.add_argument("--contestants", nargs="+", type=contestant, default=[("ring", None), ("gather", None), ("pass", None)],
                        metavar="NAME[@TOKENS]", help=f"everywhere, or for so many tokens alone: {', '.join(KNOWN)}")  # fmt: skip
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8], help="of queries, and of keys")
    parser.add_argument("--limit", type=float, default=300, help="seconds, after which no sequence is begun")
    parser.add_argument("--seconds", type=float, default=10, help="for the rounds of one sequence, but three of them at least")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", default="")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds, until a rank that stands still ends the others")
    parser.add_argument("--lose", choices=("dead", "still"), help="the last rank dies, or stands still, before the ring: what do the others say?")
    options = parser.parse_args()
    ranks = Ranks(options.device, 2 * options.timeout)
    on_gpu = ranks.on_gpu
    told = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "emulator", "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "", "commit": options.commit, "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    ranks.say(told, f"{ranks.count} ranks", {key: value for key, value in os.environ.items() if key.startswith("NCCL")})
    if options.lose:
        lose(ranks, options)
    shared_by = [cards(ranks, count) for count in options.cards or [ranks.count]]
    problems = [(n, backward) for backward, tokens in enumerate((options.tokens, options.backward)) for n in tokens]
    for (n, backward), mask in ((problem, mask) for problem in problems for mask in options.masks):
        if max(ranks.all(time.monotonic() - BEGAN)) > options.limit:
            ranks.say(f"n={n} {mask}: not begun, the time is over")
            continue
        problem = Problem(ranks, n, *options.heads, mask == "causal", bool(backward))
        names = [name for name, tokens in options.contestants if tokens in (None, n)]
        with problem.open:
            rows = measure(problem, names, shared_by, options.seconds, n in options.look, options.out, told)
        problem.share.cache_clear()
        del problem
        if ranks.rank == 0:
            add(rows, options.out / "ring.csv")
    ranks.say("done")
    dist.destroy_process_group()


def add(rows: list[dict], path: Path) -> None:
    """To a file, as a heat of their own: its contestants ran in turns."""
    heat, is_new = 1, not path.exists()
    if not is_new:
        with path.open(newline="") as file:
            heat = 1 + max(int(row["heat"]) for row in csv.DictReader(file))
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, ["heat", *rows[0]])
        if is_new:
            writer.writeheader()
        writer.writerows({"heat": heat, **row} for row in rows)


def lose(ranks: Ranks, options) -> None:
    problem = Problem(ranks, options.tokens[0], *options.heads, causal=True, backward=False)
    call = ring(problem, Cards(None, ranks.rank, ranks.count), timeout=options.timeout)
    call()
    ranks.wait()
    dist.barrier(group=ranks.host)
    if ranks.rank == ranks.count - 1:
        if options.lose == "dead":
            os._exit(3)
        time.sleep(120)
    begin = time.monotonic()
    try:
        call()
        ranks.wait()
        words = "went on without the others"
    except Exception as reason:
        words = f"ends after {time.monotonic() - begin:.0f} s: {type(reason).__name__}: {reason}"
    print(f"rank {ranks.rank} {words}", file=sys.stderr, flush=True)
    os._exit(1)  # whatever threads of NCCL's still wait for


if __name__ == "__main__":
    main()
