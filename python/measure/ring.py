"""One sequence over several GPUs: tokens per second of our ring, of K and V gathered before one kernel, and of PyTorch's context_parallel, in
turns with one card alone; and what each kernel of one call did when, by rank.
    torchrun --nproc-per-node 2 python/measure/ring.py --out FOLDER [--tokens 131072 524288] [--contestants ring gather] [--limit SECONDS]
Where a rank dies, torchrun ends the others; where one only stands still, the group does, after a timeout."""

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

import flash_ladder
import flash_ladder.ring
import torch
import torch.distributed as dist
import torch.nn.functional as F
from flash_ladder.ring import share

warnings.simplefilter("ignore")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no multicast: it can put the cards of a host that others share out of service
os.environ.setdefault("TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "1000")  # four of these pass before a timeout ends the process, 15 s each otherwise
TIMEOUT = 40  # seconds, of everything that ranks do together
D, ELEMENT_BYTES = 128, 2
MOST_ROUNDS, FEWEST_ROUNDS = 9, 3
KERNEL, PASS = "flash_attention", "nccl"  # in the names of kernels
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


class Problem:
    """A sequence: whole, the same on all ranks, and this rank's share."""

    def __init__(self, ranks: Ranks, n: int, heads: int, kv_heads: int, causal: bool):
        self.ranks, self.n, self.heads, self.kv_heads, self.causal = ranks, n, heads, kv_heads, causal
        generator = torch.Generator(ranks.device).manual_seed(n)
        self.whole = [torch.randn(1, n, h, D, generator=generator, device=ranks.device, dtype=torch.bfloat16) for h in (heads, kv_heads, kv_heads)]
        self.share = [share(each, ranks.rank, ranks.count) for each in self.whole]
        self.open = contextlib.ExitStack()  # what lasts as long as it is measured

    def __str__(self) -> str:
        return f"n={self.n} {'causal' if self.causal else 'dense'}"

    def flops(self) -> float:
        return 4 * self.heads * self.n**2 * D / (2 if self.causal else 1)

    def sent(self, name: str) -> int:
        """Bytes of K and V that a rank sends. PyTorch's is not computed."""
        passes = {"one": 0, "pass": 1, "ring": self.ranks.count - 1, "engine": self.ranks.count - 1, "gather": self.ranks.count - 1}.get(name)
        return "" if passes is None else passes * 2 * self.n // self.ranks.count * self.kv_heads * D * ELEMENT_BYTES


def one(problem: Problem):
    """The whole sequence on a card alone, on each of them at the same time."""
    return lambda: flash_ladder.attention(*problem.whole, causal=problem.causal, return_lse=True)


def ring(problem: Problem):
    return lambda: flash_ladder.ring.attention(*problem.share, causal=problem.causal, return_lse=True)


def pass_alone(problem: Problem):
    """What a step of the ring sends, with no kernel beside it."""

    def call():
        coming, requests = flash_ladder.ring.pass_on(problem.share[1:])
        for request in requests:
            request.wait()

    return call


def gather(problem: Problem):
    """All keys to every rank, and then one kernel; under a mask one for each piece of the queries, over the keys up to its end."""
    count, rank = problem.ranks.count, problem.ranks.rank
    piece = problem.n // (2 * count)

    def call():
        gathered = []
        for each in problem.share[1:]:
            parts = each.new_empty(count * each.shape[0], *each.shape[1:])
            dist.all_gather_into_tensor(parts, each)
            pieces = [part.chunk(2, dim=1) for part in parts.chunk(count)]
            gathered.append(torch.cat([first for first, _ in pieces] + [second for _, second in reversed(pieces)], dim=1))
        q, (k, v) = problem.share[0], gathered
        if not problem.causal:
            return flash_ladder.attention(q, k, v, return_lse=True)
        ends = (rank + 1) * piece, (2 * count - rank) * piece
        found = [
            flash_ladder.attention(part, k[:, :end], v[:, :end], causal=True, return_lse=True) for part, end in zip(q.chunk(2, dim=1), ends)
        ]
        return torch.cat([out for out, _ in found], dim=1), torch.cat([lse for _, lse in found], dim=2)

    return call


def engine(problem: Problem):
    """The ring, but keys come from their owners by a copy engine, which needs no SM. They are shared by CUDA's IPC, once and beforehand."""
    from torch.multiprocessing.reductions import reduce_tensor

    ranks, streams = problem.ranks, [torch.cuda.Stream()]
    shared = ranks.all([reduce_tensor(each) for each in problem.share[1:]])
    of_others = [[rebuild(*arguments) for rebuild, arguments in shared[(ranks.rank - step) % ranks.count]] for step in range(1, ranks.count)]
    token = torch.zeros(1, device=ranks.device)

    class Arrival:
        def wait(self):
            torch.cuda.current_stream().wait_stream(streams[0])

    def call():
        steps = iter(of_others)

        def fetch(keys, group=None):
            if keys[0].data_ptr() == problem.share[1].data_ptr():
                dist.all_reduce(token)  # all owners have theirs
            coming = [torch.empty_like(each) for each in keys]
            streams[0].wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(streams[0]):
                for to, source in zip(coming, next(steps)):
                    to.copy_(source, non_blocking=True)
            return coming, [Arrival()]

        pass_on, flash_ladder.ring.pass_on = flash_ladder.ring.pass_on, fetch
        try:
            return flash_ladder.ring.attention(*problem.share, causal=problem.causal, return_lse=True)
        finally:
            flash_ladder.ring.pass_on = pass_on

    return call


def context_parallel(backend: str):
    """PyTorch's, which patches scaled_dot_product_attention, with its own balance of load under a mask, and grouped heads."""

    def of(problem: Problem):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.experimental import context_parallel as parallel
        from torch.distributed.tensor.experimental._attention import _cp_options
        from torch.nn.attention import SDPBackend, sdpa_kernel

        mesh = init_device_mesh(problem.ranks.device.type, (problem.ranks.count,))
        by_head = [each.transpose(1, 2).contiguous() for each in problem.share]
        grouped = {"enable_gqa": problem.heads != problem.kv_heads}
        buffer = torch.empty(1, 1, 2 * problem.ranks.count, 1, device=problem.ranks.device)  # it insists on one to share
        _cp_options.enable_load_balance = problem.causal
        problem.open.enter_context(parallel(mesh, buffers=[buffer], buffer_seq_dims=[2], no_restore_buffers={buffer}))

        def call():
            with sdpa_kernel(getattr(SDPBackend, backend)):
                out = F.scaled_dot_product_attention(*by_head, is_causal=problem.causal, **grouped)
            return out.transpose(1, 2), None

        try:
            call()
        except Exception as reason:
            problem.ranks.say(f"{backend}: each head of queries gets keys of its own: {type(reason).__name__}: {str(reason)[:300]}")
            by_head[1:] = (each.repeat_interleave(problem.heads // problem.kv_heads, dim=1) for each in by_head[1:])
            grouped["enable_gqa"] = False
        return call

    return of


KNOWN = {
    "one": one, "ring": ring, "gather": gather, "pass": pass_alone, "engine": engine,
    "cp_flash": context_parallel("FLASH_ATTENTION"), "cp_cudnn": context_parallel("CUDNN_ATTENTION"),
}  # fmt: skip


def unlike(found, wanted) -> tuple[float, float]:
    """How far a result is from another: the largest of the rows of O, relative; the largest of LSE."""
    out, lse = found
    rows, wanted_rows = (each.float().flatten(0, 2) for each in (out, wanted[0]))
    of_rows = (rows - wanted_rows).norm(dim=1) / wanted_rows.norm(dim=1)
    worst = of_rows.max().item() if torch.isfinite(rows).all() else float("inf")
    return worst, 0.0 if lse is None else (lse - wanted[1]).abs().max().item()


def check(problem: Problem, calls: dict) -> dict[str, tuple[float, float]]:
    """The contestants that agree with one card, and how well; the others are taken out of `calls`."""
    ranks, errors = problem.ranks, {}
    out, lse = calls["one"]()
    wanted = share(out, ranks.rank, ranks.count), share(lse.transpose(1, 2), ranks.rank, ranks.count).transpose(1, 2)
    for name in list(calls):
        if name in ("one", "pass"):
            errors[name] = ("", "")
            continue
        try:
            error, words = unlike(calls[name](), wanted), ""
            ranks.wait()
        except Exception as reason:  # one that cannot is left out, the others go on
            error, words = (float("inf"), 0.0), f"{type(reason).__name__}: {str(reason)[:500]}\n{traceback.format_exc()[-700:]}"
        of_all = ranks.all((*error, words))
        errors[name] = tuple(max(each[i] for each in of_all) for i in range(2))
        # Rounding of bf16 is 2^-9 of a number at most, and partial results are rounded twice; a row is 128 numbers.
        if errors[name][0] > 2**-6 or errors[name][1] > 1e-3:
            ranks.say(f"{problem}: {name} is left out: O differs by {errors[name][0]:.1e}, LSE by {errors[name][1]:.1e}",
                      *(each[2] for each in of_all if each[2]))  # fmt: skip
            del calls[name]
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
    ours, passes = ([(k["begin"], k["end"]) for k in kernels if word in k["name"]] for word in (KERNEL, PASS))
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


def look(problem: Problem, name: str, call, out: Path) -> dict:
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
    of_all = ranks.all(kernels)
    if not all(of_all):
        return found
    begin = min(each[0]["begin"] for each in of_all)
    for kernel in (kernel for each in of_all for kernel in each):
        kernel["begin"], kernel["end"] = (round(kernel[key] - begin, 1) for key in ("begin", "end"))
    if ranks.rank == 0:
        path = out / f"timeline_{name}_{problem.n}_{'causal' if problem.causal else 'dense'}.json"
        path.write_text(json.dumps({"contestant": name, "n": problem.n, "causal": problem.causal, "us": of_all}))
    return found | min((shares_of(each) for each in of_all), key=lambda shares: shares["kernel_share"] or 0)


def measure(problem: Problem, names: list[str], seconds: float, out: Path, told: dict) -> list[dict]:
    ranks, calls = problem.ranks, {}
    rung = flash_ladder.why(*problem.whole, causal=problem.causal, return_lse=True).rung
    for name in ["one", *(name for name in names if name != "one")]:
        try:
            calls[name] = KNOWN[name](problem)
        except Exception as reason:
            ranks.say(f"{problem}: {name} is left out: {type(reason).__name__}: {reason}")
    calls = {name: call for name, call in calls.items() if all(ranks.all(name in calls))}
    errors = check(problem, calls)  # and everybody is warm
    ranks.say(f"{problem}: right", *(f"{name} {errors[name][0]:.1e} {errors[name][1]:.1e}," for name in calls if errors[name][0] != ""))
    times: dict[str, list[list[float]]] = {name: [] for name in calls}  # by round, by rank
    order, rounds, number = list(calls), MOST_ROUNDS, 0
    while number < rounds:
        for name in order:
            times[name].append(ranks.all(ranks.milliseconds(calls[name])))
        order = order[1:] + order[:1]
        number += 1
        if number == 1:
            of_a_round = sum(max(times[name][0]) for name in calls) / 1e3
            rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, int(seconds / of_a_round)))
            rounds = min(ranks.all(rounds))
    rows = []
    alone = [min(each) for each in times["one"]]  # the faster card's: what a ring has to be held against
    for name in calls:
        ms = [max(each) for each in times[name]] if name != "one" else alone
        middle = statistics.median(ms)
        ratios = [a / b for a, b in zip(alone, ms)] if name != "pass" else []
        row = {
            **told, "ranks": 1 if name == "one" else ranks.count, "contestant": name,
            "rung": "" if name == "pass" or name.startswith("cp_") else rung, "batch": 1, "heads": problem.heads, "kv_heads": problem.kv_heads,
            "n": problem.n, "d": D, "dtype": "bf16", "causal": int(problem.causal), "rounds": len(ms), "ms_median": round(middle, 4),
            "ms_least": round(min(ms), 4), "ms_most": round(max(ms), 4),
            "tokens_per_s": round(problem.n / middle * 1e3) if ratios else "",
            "tflops_per_card": round(problem.flops() / middle / 1e9 / (1 if name == "one" else ranks.count), 1) if ratios else "",
            **{f"over_one{end}": round(of(ratios), 4) if ratios else "" for end, of in (("", statistics.median), ("_least", min), ("_most", max))},
            "sent_bytes": problem.sent(name), "nvlink_bytes": "", "kernel_share": "", "pass_beside_kernel": "",
            "error_o": f"{errors[name][0]:.1e}" if errors[name][0] != "" else "", "error_lse": f"{errors[name][1]:.1e}" if errors[name][0] != "" else "",
        }  # fmt: skip
        if ranks.on_gpu and name not in ("one", "pass"):
            row |= look(problem, name, calls[name], out)
        rows.append(row)
        ranks.say(f"{problem}: {name}", f"{middle:.3f} ms [{min(ms):.3f}, {max(ms):.3f}],", f"over one {row['over_one']} [{row['over_one_least']}, {row['over_one_most']}],",
                  f"kernel {row['kernel_share']}, beside {row['pass_beside_kernel']}, NVLink {row['nvlink_bytes']} of {row['sent_bytes']}, {len(ms)} rounds")  # fmt: skip
    ranks.say(f"{problem}: one card, each: {[round(statistics.median(each), 3) for each in zip(*times['one'])]} ms")
    return rows


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for ring.csv, to which rows are added, and for timelines")
    parser.add_argument("--tokens", type=int, nargs="+", default=[131072, 524288, 32768, 65536, 262144])
    parser.add_argument("--masks", nargs="+", choices=("causal", "dense"), default=["causal", "dense"])
    parser.add_argument("--contestants", nargs="+", choices=KNOWN, default=["one", "ring", "gather", "pass"])
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8], help="of queries, and of keys")
    parser.add_argument("--limit", type=float, default=300, help="seconds, after which no sequence is begun")
    parser.add_argument("--seconds", type=float, default=10, help="for the rounds of one sequence, but three of them at least")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--commit", default="")
    parser.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds, until a rank that stands still ends the others")
    parser.add_argument("--lose", choices=("dead", "still"), help="the last rank dies, or stands still, before the ring: what do the others say?")
    options = parser.parse_args()
    ranks = Ranks(options.device, options.timeout)
    on_gpu = ranks.on_gpu
    told = {
        "gpu": torch.cuda.get_device_name() if on_gpu else "emulator", "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())) if on_gpu else "", "commit": options.commit, "date": datetime.date.today().isoformat(),
    }  # fmt: skip
    ranks.say(told, f"{ranks.count} ranks", {key: value for key, value in os.environ.items() if key.startswith("NCCL")})
    if options.lose:
        lose(ranks, options)
    for n, mask in ((n, mask) for n in options.tokens for mask in options.masks):
        if max(ranks.all(time.monotonic() - BEGAN)) > options.limit:
            ranks.say(f"n={n} {mask}: not begun, the time is over")
            continue
        problem = Problem(ranks, n, *options.heads, mask == "causal")
        with problem.open:
            rows = measure(problem, options.contestants, options.seconds, options.out, told)
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
    problem = Problem(ranks, options.tokens[0], *options.heads, causal=True)
    ring(problem)()
    ranks.wait()
    dist.barrier(group=ranks.host)
    if ranks.rank == ranks.count - 1:
        if options.lose == "dead":
            os._exit(3)
        time.sleep(120)
    begin = time.monotonic()
    try:
        ring(problem)()
        ranks.wait()
    except Exception as reason:
        sys.exit(f"rank {ranks.rank} ends after {time.monotonic() - begin:.0f} s: {type(reason).__name__}: {reason}")
    sys.exit(f"rank {ranks.rank} went on without the others")


if __name__ == "__main__":
    main()
