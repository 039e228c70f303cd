"""FlashAttention-3, FlashAttention-4, cuDNN or flash_ladder, on this card: each as its users call it, with tensors [batch, n, heads, d],
in turns, one problem after the other. docs/which.md shows the rows. Whoever is not installed, or does not take a problem, is left out.
    python3 python/measure/peers.py --csv docs/results/CARD_peers.csv --commit HASH [--only WORDS] [--rounds 8]
With --grid, CARD_grid_peers.csv: the forward pass on each input set, with and without a mask, short and long."""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib.metadata
import itertools
import random
import statistics
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import flash_ladder
import inputs as input_sets
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.append(str(Path(__file__).resolve().parents[2] / "harness/peers"))
import fa3 as fa3_peer
from torch_peer import Refusal

warnings.simplefilter("ignore")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
WARM_MS, TIMED_MS = 15, 30  # of a round: of itself, not timed, and then timed
MOST_UNLIKE = {torch.float16: 4e-3, torch.bfloat16: 2e-2}  # of the norm of the difference from float32, over its norm


class Problem(NamedTuple):
    dtype: torch.dtype = torch.bfloat16
    batch: int = 4
    heads: int = 16
    kv_heads: int = 16
    n_q: int = 4096
    n_k: int = 4096
    d: int = 128
    causal: bool = False
    window: int | None = None  # keys before a query's own
    softcap: float = 0.0
    lengths: tuple[int, ...] = ()  # of sequences that lie one behind the other
    backward: bool = False
    deterministic: bool = False
    page: int | None = None  # keys lie in a cache, in pages of so many; 0: in one piece
    inputs: str = "normal"

    @property
    def words(self) -> str:
        """As on the ladder's command line (CONTRIBUTING.md, "Another problem, type or shape"), but for "deterministic"."""
        size = f"nq={self.n_q} nk={self.n_k}" if self.n_q != self.n_k else f"n={self.n_q}"
        if self.lengths:
            size = "lens_q={0} lens_k={0}".format(",".join(map(str, self.lengths)))
        words = ["backward"] * self.backward + [f"b={len(self.lengths) or self.batch}", f"h={self.heads}"]
        words += [f"kv={self.kv_heads}"] * (self.kv_heads != self.heads) + [size, f"d={self.d}"]
        words += ["bf16" if self.dtype == torch.bfloat16 else "fp16"] + ["causal"] * (self.causal and self.window is None)
        words += [f"window={self.window},0"] * (self.window is not None) + [f"softcap={self.softcap:g}"] * (self.softcap > 0)
        words += [f"pages={self.page}" if self.page else "cache"] * (self.page is not None)
        return " ".join(words + ["deterministic"] * self.deterministic)

    @property
    def pairs(self) -> float:
        """(query, key) that the mask lets through, of a head: a causal square counts as half of n^2."""
        total = 0.0
        for n_q, n_k in zip(self.lengths, self.lengths) if self.lengths else [(self.n_q, self.n_k)] * self.batch:
            if self.window is not None:
                total += sum(min(i + n_k - n_q, self.window) + 1 for i in range(n_q))
            else:
                total += n_q * (n_k - n_q / 2) if self.causal else n_q * n_k
        return total

    @property
    def work(self) -> float:
        """Floating-point operations; of one query, which is bound by memory, bytes of K and V."""
        if self.n_q == 1:
            return 2 * 2 * self.batch * self.kv_heads * self.n_k * self.d
        return (10 if self.backward else 4) * self.pairs * self.heads * self.d


def problems() -> list[Problem]:
    found = []
    both = (False, True)
    for dtype in (torch.bfloat16, torch.float16):
        of_type = Problem(dtype)
        for d, heads in ((128, 16), (64, 16), (256, 8)):
            for (batch, n), causal in itertools.product(((16, 1024), (4, 4096), (1, 16384)), both):
                found.append(of_type._replace(batch=batch, heads=heads, kv_heads=heads, n_q=n, n_k=n, d=d, causal=causal))
        found += [of_type._replace(heads=heads, kv_heads=heads, d=d) for d, heads in ((40, 16), (80, 16), (96, 16), (160, 8), (192, 8), (224, 8))]
        for causal in both:
            found.append(of_type._replace(batch=32, n_q=512, n_k=512, causal=causal))
            found.append(of_type._replace(heads=32, kv_heads=8, causal=causal))
        ten = (37, 8192, 611, 1024, 2048, 128, 4096, 333, 1500, 64)
        found.append(of_type._replace(batch=8, n_q=1000, n_k=1000, causal=True))
        found.append(of_type._replace(batch=1, n_q=32768, n_k=32768, causal=True, window=1024))
        found.append(of_type._replace(batch=16, n_q=512, n_k=8192))
        found.append(of_type._replace(heads=32, kv_heads=8, lengths=ten, causal=True))
        found.append(of_type._replace(heads=32, kv_heads=8, causal=True, softcap=50.0))
        back = of_type._replace(backward=True)
        for (batch, n), causal in itertools.product(((16, 1024), (4, 4096), (1, 16384)), both):
            found.append(back._replace(batch=batch, n_q=n, n_k=n, causal=causal))
        for causal in both:
            found += [back._replace(d=64, causal=causal), back._replace(heads=32, kv_heads=8, causal=causal),
                      back._replace(causal=causal, deterministic=True)]  # fmt: skip
        found += [back._replace(d=d) for d in (80, 96)]
        found.append(back._replace(d=256, heads=8, kv_heads=8, causal=True))
        found.append(back._replace(batch=1, n_q=16384, n_k=16384, causal=True, window=1024))
        found.append(back._replace(heads=32, kv_heads=8, lengths=ten, causal=True))
        in_turn = back._replace(deterministic=True)
        found += [in_turn._replace(d=64), in_turn._replace(heads=32, kv_heads=8, causal=True), in_turn._replace(heads=32, kv_heads=8, lengths=ten, causal=True),
                  in_turn._replace(batch=1, n_q=16384, n_k=16384, causal=True, window=1024)]  # fmt: skip
        for batch, n_k, kv_heads in ((1, 8192, 8), (8, 8192, 8), (64, 8192, 8), (1, 65536, 8), (8, 8192, 1)):
            found.append(of_type._replace(batch=batch, heads=32, kv_heads=kv_heads, n_q=1, n_k=n_k, causal=True))
    return found


def grid() -> list[Problem]:
    """Each of 16384 tokens, or somewhat fewer."""
    found = []

    def add(of: Problem, sets: tuple[str, ...], lengths: tuple[int, ...]) -> None:
        found.extend(of._replace(inputs=inputs, causal=causal, batch=16384 // n, n_q=n, n_k=n)
                     for inputs, causal, n in itertools.product(sets, (False, True), lengths))  # fmt: skip

    of = Problem()
    add(of, input_sets.SETS, (512, 1000, 1024, 2048, 4096, 8192, 16384))
    for other in (of._replace(dtype=torch.float16), of._replace(d=64), of._replace(d=256, heads=8, kv_heads=8), of._replace(heads=32, kv_heads=8)):
        add(other, ("normal", "sinks", "peaky"), (1024, 4096, 16384))
    return found


class Tensors:
    """q, k, v, and of several lengths their ends; gradients are asked of them where the problem does. From one seed."""

    def __init__(self, problem: Problem) -> None:
        torch.manual_seed(0)
        p = problem
        rows = [(sum(p.lengths), heads, p.d) for heads in (p.heads, p.kv_heads, p.kv_heads)] if p.lengths else [
            (p.batch, n, heads, p.d) for n, heads in ((p.n_q, p.heads), (p.n_k, p.kv_heads), (p.n_k, p.kv_heads))]  # fmt: skip
        q, k, v = (torch.randn(shape, device=DEVICE, dtype=p.dtype) for shape in rows)
        self.q, self.k, self.v = (each.requires_grad_(p.backward) for each in (*input_sets.shaped(p.inputs, q, k), v))
        self.d_out = torch.randn(rows[0], device=DEVICE, dtype=p.dtype) if p.backward else None
        self.ends = torch.tensor([0, *itertools.accumulate(p.lengths)], device=DEVICE, dtype=torch.int32) if p.lengths else None
        self.most = max(p.lengths, default=0)

    @property
    def qkv(self):
        return self.q, self.k, self.v


def expected(p: Problem, t: Tensors):
    """Of float32: O, or dQ, dK and dV, of the last sequence's first head of keys, and where that lies in a result."""
    rows = slice(int(t.ends[-2]), int(t.ends[-1])) if p.lengths else slice(None)
    group = p.heads // p.kv_heads
    part = [(each if p.lengths else each[-1])[rows, :heads].detach().float().transpose(0, 1)
            for each, heads in ((t.q, group), (t.k, 1), (t.v, 1))]  # fmt: skip
    part = [each.requires_grad_(p.backward) for each in part]
    n_q, n_k = part[0].shape[1], part[1].shape[1]
    scores = part[0] @ part[1].transpose(1, 2) * p.d**-0.5
    if p.softcap:
        scores = p.softcap * torch.tanh(scores / p.softcap)
    if p.causal:
        distance = torch.arange(n_q, device=DEVICE)[:, None] + n_k - n_q - torch.arange(n_k, device=DEVICE)
        scores = scores.masked_fill((distance < 0) | (distance > (n_k if p.window is None else p.window)), float("-inf"))
    out = scores.softmax(-1) @ part[2]
    results = torch.autograd.grad(out, part, (t.d_out if p.lengths else t.d_out[-1])[rows, :group].float().transpose(0, 1)) if p.backward else [out]

    def of(result):
        return [(each if p.lengths else each[-1])[rows, :len(like)].float().transpose(0, 1) for each, like in zip(result, results)]

    return [each.detach() for each in results], of


# Each gives a function that computes O, or raises Refusal; what else it raises on its first call counts as one.
def of_ladder(p: Problem, t: Tensors):
    options = dict(causal=p.causal, window=(p.window, 0) if p.window is not None else None, softcap=p.softcap, deterministic=p.deterministic)
    if p.lengths:
        return lambda: flash_ladder.flash_attn_varlen_func(*t.qkv, t.ends, t.ends, t.most, t.most, causal=p.causal, softcap=p.softcap,
                                                           deterministic=p.deterministic)  # fmt: skip
    return lambda: flash_ladder.attention(*t.qkv, **options)


class Fa3Gradients(torch.autograd.Function):
    """xformers has its kernels and no autograd of them."""

    @staticmethod
    def forward(ctx, q, k, v, run, run_backward):
        out, lse = run(q, k, v)[:2]
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.run_backward = run_backward
        return out

    @staticmethod
    def backward(ctx, d_out):
        q, k, v, out, lse = ctx.saved_tensors
        gradients = [torch.empty_like(each) for each in (q, k, v)]
        ctx.run_backward(d_out, q, k, v, out, lse, *gradients)
        return *gradients, None, None


def of_fa3(p: Problem, t: Tensors):
    given = list(fa3_peer.NOT_GIVEN)
    if p.lengths:
        given[4:6], given[9:11] = (t.ends, t.ends), (t.most, t.most)
    window = (p.window, 0) if p.window is not None else (-1, -1)
    scale, causal = p.d**-0.5, p.causal and p.window is None
    attention_chunk, _, *rest = fa3_peer.DEFAULTS
    if p.n_q <= 16:
        rest[2] = 0  # as many splits as it thinks best
    tail = (scale, causal, *window, attention_chunk, p.softcap, *rest)

    def run(q, k, v):
        return torch.ops.flash_attn_3.fwd(q, k, v, *given, *tail)

    def run_backward(d_out, q, k, v, out, lse, *gradients):
        lengths = (t.ends, t.ends, None, None, t.most, t.most) if p.lengths else (None,) * 6
        torch.ops.flash_attn_3.bwd(d_out, q, k, v, out, lse, *gradients, *lengths, scale, causal, *window, p.softcap, p.deterministic, 0)

    return lambda: Fa3Gradients.apply(*t.qkv, run, run_backward) if p.backward else run(*t.qkv)[0]


def of_fa4(p: Problem, t: Tensors):
    from flash_attn.cute import flash_attn_func, flash_attn_varlen_func

    options = dict(causal=p.causal and p.window is None, softcap=p.softcap, deterministic=p.deterministic,
                   window_size=(p.window, 0) if p.window is not None else (None, None))  # fmt: skip
    if p.lengths:
        call = lambda: flash_attn_varlen_func(*t.qkv, cu_seqlens_q=t.ends, cu_seqlens_k=t.ends, max_seqlen_q=t.most, max_seqlen_k=t.most, **options)
    else:
        call = lambda: flash_attn_func(*t.qkv, **options)

    def first_of():
        result = call()
        return result[0] if isinstance(result, tuple) else result

    return first_of


def of_cudnn(p: Problem, t: Tensors):
    if p.lengths or p.window is not None or p.softcap or p.deterministic:
        raise Refusal("not through PyTorch")
    if p.causal and p.n_q not in (1, p.n_k):
        raise Refusal("its mask begins with the first keys")

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            by_head = (each.transpose(1, 2) for each in t.qkv)
            return F.scaled_dot_product_attention(*by_head, is_causal=p.causal and p.n_q > 1, enable_gqa=p.heads != p.kv_heads).transpose(1, 2)

    return call


def version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "without a version"


def contenders() -> dict:
    """Name: (what makes its call of a problem, its version)."""
    cudnn = torch.backends.cudnn.version()
    found = {"flash_ladder": (of_ladder, flash_ladder.__version__ if hasattr(flash_ladder, "__version__") else "of this commit"),
             "cudnn": (of_cudnn, f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}")}  # fmt: skip
    try:
        fa3_peer.load_extension()
        found["fa3"] = of_fa3, f"xformers {version_of('xformers')}"
    except Refusal as reason:
        print(f"Without FlashAttention-3: {reason}", file=sys.stderr)
    try:
        import flash_attn.cute

        found["fa4"] = of_fa4, f"flash-attn-4 {version_of('flash-attn-4')}"
    except ImportError as reason:
        print(f"Without FlashAttention-4: {reason}", file=sys.stderr)
    return found


def milliseconds(call, launches: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(launches):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def calls_of(p: Problem, t: Tensors, known: dict) -> dict:
    """Each that takes the problem and is right."""
    wanted, of = expected(p, t)
    found = {}
    for name, (make, _) in known.items():
        try:
            attend = make(p, t)
            if p.backward:  # the forward pass is not timed
                out = attend()
                call = lambda out=out: torch.autograd.grad(out, t.qkv, t.d_out, retain_graph=True)
                result = call()
            else:
                call, result = attend, [attend()]
            torch.cuda.synchronize()
        except Exception as reason:  # of many types: whoever does not take it says so in its own way
            print(f"  {name}: no: {str(reason).strip().splitlines()[0][:150] if str(reason).strip() else type(reason).__name__}", file=sys.stderr)
            continue
        unlike = max(((a - b).norm() / b.norm()).item() for a, b in zip(of(result), wanted))
        if unlike > MOST_UNLIKE[p.dtype]:
            print(f"  {name}: wrong by {unlike:.1e}: not timed", file=sys.stderr)
            continue
        found[name] = call
    return found


def interval(ratios: list[float]) -> tuple[float, float]:
    """Of the median, by bootstrap, 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def race(calls: dict, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a launch, of each round. Each is behind each other equally often, or nearly."""
    launches = {}
    for name, call in calls.items():
        milliseconds(call, 2)
        once = milliseconds(call, 3) / 3
        launches[name] = [max(1, round(ms / once)) for ms in (WARM_MS, TIMED_MS)]
    orders = list(itertools.permutations(calls))
    random.Random(0).shuffle(orders)
    times = {name: [] for name in calls}
    for turn in range(rounds):
        order = orders[turn % len(orders)] if turn % 2 == 0 else orders[(turn - 1) % len(orders)][::-1]
        for name in order:
            warm, timed = launches[name]
            milliseconds(calls[name], warm)
            times[name].append(milliseconds(calls[name], timed) / timed)
    return times


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go, after each problem")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--only", nargs="+", default=[], help="problems with all of these words: fp16 backward")
    parser.add_argument("--grid", action="store_true", help="the forward pass on each input set")
    parser.add_argument("--rounds", type=int, default=8, help="0: each is called once, for whoever compiles then and keeps it")
    options = parser.parse_args(arguments)
    known, rows = contenders(), []
    gpu = torch.cuda.get_device_name()
    driver = _driver()
    for problem in grid() if options.grid else problems():
        if not set(options.only) <= {*problem.words.split(), problem.inputs}:
            continue
        print(problem.words, problem.inputs, file=sys.stderr, flush=True)
        tensors = Tensors(problem)
        calls = calls_of(problem, tensors, known)
        if not calls or options.rounds == 0:
            continue
        times = race(calls, options.rounds)
        clock = torch.cuda.clock_rate()
        for name in calls:
            ms = statistics.median(times[name])
            row = {"problem": problem.words, **({"inputs": problem.inputs} if options.grid else {}), "attention": name, "version": known[name][1], "gpu": gpu, "driver": driver,
                   "torch": torch.__version__, "clock_mhz": clock, "rounds": options.rounds, "us_median": round(ms * 1e3, 2),
                   "rate": round(problem.work / ms / 1e9, 1), "over": "", "over_lo": "", "over_hi": ""}  # fmt: skip
            if name != "flash_ladder" and "flash_ladder" in calls:
                ratios = [peer / ours for peer, ours in zip(times[name], times["flash_ladder"])]
                row["over"], (row["over_lo"], row["over_hi"]) = statistics.median(ratios), interval(ratios)
                row.update({each: round(row[each], 4) for each in ("over", "over_lo", "over_hi")})
            row.update(rung=_rung(problem) if name == "flash_ladder" else "", commit=options.commit,
                       date=datetime.date.today().isoformat())  # fmt: skip
            rows.append(row)
        print("  " + "  ".join(f"{row['attention']} {row['rate']:.0f}" for row in rows[-len(calls):]), file=sys.stderr, flush=True)
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        del tensors, calls
        torch.cuda.empty_cache()


def _rung(p: Problem, device: int | None = 0) -> str:
    """Which one the package takes, that copies what a rung does not take as it lies."""
    return flash_ladder.why(p.words.removesuffix(" deterministic"), device=device, deterministic=p.deterministic).rung or ""


def _driver() -> str:
    import pynvml

    pynvml.nvmlInit()
    return pynvml.nvmlSystemGetDriverVersion()


if __name__ == "__main__":
    main()
