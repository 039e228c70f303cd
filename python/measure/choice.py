"""Whether the package chooses well: for each problem all rungs that take it, in turns, as attention(q, k, v, rung=...) runs them, launches in
a CUDA graph. python/tests/choice_tests.py holds the choice to the rows.
    python3 python/measure/choice.py --csv docs/results/CARD_choice.csv --commit HASH [--only WORDS] [--rounds 8] [--limit SECONDS]
A row is a rung that takes the problem: `us_median` of a launch, and `over`, its time over the chosen one's: the median of the rounds' ratios,
between `over_lo` and `over_hi` (95 %). Who is far behind at a first look is not raced, and has one round.
Without a GPU: tiny problems on the emulator, each rung once."""

from __future__ import annotations

import argparse
import csv
import datetime
import itertools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import flash_ladder
import peers
import torch
from flash_ladder import _attention, _native
from flash_ladder._arrays import library_of
from peers import DEVICE, Problem, Tensors

TIMED_MS = 6  # of a round: as long of itself before it, not timed
NEAR, MOST_NEAR = 1.25, 12  # times the fastest's first look: who is slower is not raced; nor more than so many
FLUSH, MOST_LAUNCHES = 300e6, 200  # bytes of all copies of few queries' keys and values, at least: six times an H200's L2; of a graph


def problems() -> list[Problem]:
    found = []
    for dtype in (torch.bfloat16, torch.float16):
        of = Problem(dtype, batch=1)
        long, short = of._replace(n_q=4096, n_k=4096), of._replace(batch=4, n_q=1024, n_k=1024)
        eight, grouped = dict(heads=8, kv_heads=8), dict(heads=32, kv_heads=8)
        lengths = (37, 2048, 611, 1024, 333, 64)
        for causal in (False, True):
            found += [each._replace(causal=causal) for each in (long, short, long._replace(d=64), long._replace(d=256, **eight))]
        found += [long._replace(d=96), long._replace(causal=True, **grouped), short._replace(n_q=1000, n_k=1000, causal=True)]
        found += [of._replace(heads=4, kv_heads=4, n_q=16384, n_k=16384, causal=True), of._replace(n_q=512, n_k=8192)]
        found += [of._replace(n_q=8192, n_k=8192, causal=True, window=1024, **eight), long._replace(causal=True, softcap=50.0)]
        found += [of._replace(lengths=lengths, causal=True, **grouped)]
        few = of._replace(n_q=1, n_k=8192, causal=True, **grouped)
        found += [few, few._replace(batch=8), few._replace(n_k=65536), few._replace(batch=8, kv_heads=1), few._replace(batch=8, n_q=16)]
        found += [few._replace(page=0), few._replace(batch=8, page=64)]
        back = long._replace(backward=True)
        found += [back, *(back._replace(causal=True, **each) for each in ({}, dict(d=64), grouped, dict(deterministic=True), dict(window=1024)))]
        found += [back._replace(lengths=lengths, causal=True, **grouped)]
    return found


def tiny(p: Problem) -> Problem:
    """Of the same kind, for the emulator."""
    small = p._replace(batch=min(p.batch, 2), heads=2, kv_heads=2 if p.kv_heads == p.heads else 1, n_q=min(p.n_q, 64), n_k=128 if p.n_q != p.n_k else 64)
    return small._replace(window=p.window and 16, lengths=p.lengths and (37, 64), page=p.page and 16)


class Asked:
    """A problem with tensors, and how a rung is asked for it."""

    def __init__(self, p: Problem) -> None:
        self.p, self.t = p, Tensors(p)
        k, v = self.t.k, self.t.v
        self.packed = _attention.Packed(self.t.ends, self.t.ends, self.t.most, self.t.most) if p.lengths else None
        if p.page is not None:
            table = torch.arange(p.batch * p.n_k // p.page, device=DEVICE, dtype=torch.int32).view(p.batch, -1) if p.page else None
            if p.page:
                k, v = (each.view(-1, p.page, p.kv_heads, p.d) for each in (k, v))
            self.packed = _attention.Cache(torch.full((p.batch,), p.n_k, device=DEVICE, dtype=torch.int32), table)
        self.qkv = [each.detach() for each in (self.t.q, k, v)]
        self.options = p.causal, None, None if p.window is None else (p.window, 0), p.softcap, None, None
        self.call = _attention.Call(library_of(k), *self.qkv, *self.options, self.packed)
        self.forward = _attention.run(*self.qkv, *self.options, True, None, None, self.packed) if p.backward else None

    def plan(self, rung: str | None) -> _native.Plan:
        if self.p.backward:
            return _native.plan(f"backward {self.call.text()}", rung, self.call.device, False, self.call.rows, self.p.deterministic)
        return self.call.plan(rung, False)

    def takers(self) -> list[str]:
        """The chosen one first."""
        found = [self.plan(None).rung]
        for each in _native.rungs():
            try:
                found.append(self.plan(each["rung"]).rung)
            except NotImplementedError:  # it lacks something
                pass
        return list(dict.fromkeys(found))

    def by(self, rung: str) -> Callable[[], list]:
        if not self.p.backward:
            return lambda: [_attention.run(*self.qkv, *self.options, False, None, rung, self.packed)]
        call = _attention.Call(library_of(self.qkv[0]), *self.qkv, *self.options, self.packed)
        call.gradient_plan = lambda same_bits: self.plan(rung)
        return lambda: list(call.gradients(self.t.d_out, *self.forward, self.p.deterministic))


class Launches(NamedTuple):
    """Of a rung, in a graph; on the emulator there is none."""

    count: int
    replay: Callable[[], None]

    def milliseconds(self) -> float:
        """Of one."""
        if DEVICE == "cpu":
            began = time.perf_counter()
            self.replay()
            return (time.perf_counter() - began) * 1e3 / self.count
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        self.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / self.count


def launches_of(calls: list, count: int) -> Launches:
    def launch():
        for call in itertools.islice(itertools.cycle(calls), count):
            call()

    if DEVICE == "cpu":
        return Launches(count, launch)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        launch()
    return Launches(count, graph.replay)


def race(p: Problem, rounds: int) -> tuple[str, dict[str, list[float]], float]:
    """The chosen rung; of each that takes the problem and is right, milliseconds of a launch in each round; and the chosen one's at a first look."""
    bytes_read = 2 * 2 * p.batch * p.kv_heads * p.n_k * p.d
    copies = [Asked(p) for _ in range(math.ceil(FLUSH / bytes_read) + 1 if p.n_q <= 16 and DEVICE == "cuda" else 1)]
    with torch.set_grad_enabled(p.backward):
        wanted, of = peers.expected(p, copies[0].t)
    chosen, *others = copies[0].takers()
    calls, first = {}, {}
    for rung in (chosen, *others):
        calls[rung] = [each.by(rung) for each in copies]
        try:
            unlike = max(((a - b).norm() / b.norm()).item() for a, b in zip(of(calls[rung][0]()), wanted))
            if not unlike <= peers.MOST_UNLIKE[p.dtype]:
                raise peers.Refusal(f"wrong by {unlike:.1e}")
            first[rung] = launches_of(calls[rung], len(copies)).milliseconds()
        except (peers.Refusal, RuntimeError) as reason:
            print(f"  {rung}: not timed: {str(reason).strip().splitlines()[0]}", file=sys.stderr)
    if chosen not in first:
        return chosen, {}, 0.0
    times = {rung: [ms] for rung, ms in first.items()}
    near = sorted((rung for rung in first if first[rung] <= NEAR * min(first.values())), key=first.get)[:MOST_NEAR]
    near += [chosen] * (chosen not in near)
    if rounds == 0 or len(near) == 1:
        return chosen, times, first[chosen]
    graphs = {rung: launches_of(calls[rung], min(max(math.ceil(TIMED_MS / first[rung]), len(copies)), MOST_LAUNCHES)) for rung in near}
    times |= {rung: [] for rung in near}
    for turn in range(rounds):
        random.Random(turn).shuffle(near)
        for rung in near:
            graphs[rung].replay()
            times[rung].append(graphs[rung].milliseconds())
    return chosen, times, first[chosen]


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go, after each problem")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--only", nargs="+", default=[], help="problems with all of these words: fp16 backward")
    parser.add_argument("--rounds", type=int, default=8 if DEVICE == "cuda" else 0, help="0: the first look alone")
    parser.add_argument("--limit", type=float, default=math.inf, help="seconds, after which no problem begins")
    options = parser.parse_args(arguments)
    began, rows = time.monotonic(), []
    gpu = torch.cuda.get_device_name() if DEVICE == "cuda" else "emulator"
    left = [each for each in problems() if set(options.only) <= set(each.words.split())]
    while left and time.monotonic() - began < options.limit:
        problem = left.pop(0)
        if DEVICE == "cpu":
            problem = tiny(problem)
        try:
            chosen, times, looked = race(problem, options.rounds)
        except NotImplementedError as reason:  # no rung takes it
            print(f"{problem.words}: {str(reason).splitlines()[0]}", file=sys.stderr)
            continue
        for rung, its in times.items():
            ratios = [a / b for a, b in zip(its, times[chosen] if len(its) > 1 else [looked])]
            low, high = peers.interval(ratios)
            rows.append({"gpu": gpu, "problem": problem.words, "rung": rung, "chosen": "yes" if rung == chosen else "", "rounds": len(its),
                         "us_median": f"{statistics.median(its) * 1e3:.2f}", "over": f"{statistics.median(ratios):.4f}", "over_lo": f"{low:.4f}",
                         "over_hi": f"{high:.4f}", "commit": options.commit, "date": datetime.date.today().isoformat()})  # fmt: skip
        if not times:
            continue
        fastest = min(rows[-len(times) :], key=lambda row: float(row["over"]))
        print(f"{time.monotonic() - began:4.0f} s  {problem.words:<60} {chosen}, of {len(times)}; least: {fastest['rung']} {fastest['over']}", file=sys.stderr, flush=True)
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    for problem in left:
        print(f"No time for {problem.words}", file=sys.stderr)


if __name__ == "__main__":
    main()
