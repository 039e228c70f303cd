"""One query beside many keys, in a CUDA graph of launches over copies that the L2 cache does not hold: rungs, FlashAttention-3 and cuDNN in
turns. How long a launch takes, and how many bytes of K and V it reads in a second. decoding/README.md shows the rows.
    python3 python/measure/decoding.py --csv docs/results/CARD_decoding.csv --commit HASH [--rungs d02_split d05_dependent] [--rounds 20]"""

from __future__ import annotations

import argparse
import csv
import datetime
import math
import random
import statistics
import sys

import flash_ladder
import peers
import torch
from peers import Problem

LAUNCHES, FLUSH = 20, 300e6  # of a graph; bytes of all copies, at least: six times an H200's L2


def problems() -> list[Problem]:
    of = Problem(heads=32, kv_heads=8, n_q=1, causal=True)
    found = [of._replace(batch=batch, n_k=n_k) for batch in (1, 8, 64) for n_k in (1024, 8192, 65536) if batch * n_k < 4_000_000]
    found += [of._replace(batch=batch, n_k=n_k, kv_heads=1) for batch, n_k in ((1, 8192), (1, 65536), (8, 8192))]
    found += [of._replace(batch=8, n_k=65536, kv_heads=32), *(of._replace(batch=8, n_k=8192, n_q=n_q) for n_q in (4, 8, 16))]
    return found


def graph_of(make, p: Problem, copies: list[peers.Tensors]) -> torch.cuda.CUDAGraph:
    calls = [make(p, each) for each in copies]
    result = calls[0]()
    torch.cuda.synchronize()
    wanted, of = peers.expected(p, copies[0])
    unlike = max(((a - b).norm() / b.norm()).item() for a, b in zip(of([result]), wanted))
    if unlike > peers.MOST_UNLIKE[p.dtype]:
        raise peers.Refusal(f"wrong by {unlike:.1e}")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        calls[0]()
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(LAUNCHES):
            calls[i % len(calls)]()
    return graph


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of a launch; one replay goes before that is not timed."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / LAUNCHES


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go, after each problem")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--rungs", nargs="+", default=["d02_split", "d04_warps", "d05_dependent"])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args(arguments)
    known = {rung: lambda p, t, rung=rung: lambda: flash_ladder.attention(*t.qkv, causal=p.causal, rung=rung) for rung in options.rungs}
    known |= {name: make for name, (make, _) in peers.contenders().items() if name in ("fa3", "cudnn")}
    last, rows = options.rungs[-1], []
    for p in problems():
        bytes_read = 2 * 2 * p.batch * p.kv_heads * p.n_k * p.d
        copies = [peers.Tensors(p) for _ in range(min(LAUNCHES, math.ceil(FLUSH / bytes_read) + 1))]
        graphs = {}
        for name, make in known.items():
            try:
                graphs[name] = graph_of(make, p, copies)
            except Exception as reason:  # whoever does not take it says so in its own way
                torch.cuda.synchronize()
                print(f"  {name}: no: {str(reason).strip().splitlines()[0][:150]}", file=sys.stderr)
        names, times = list(graphs), {name: [] for name in graphs}
        for _ in range(options.rounds):
            random.Random(len(times[names[0]])).shuffle(names)
            for name in names:
                times[name].append(microseconds(graphs[name]))
        for name, its in times.items():
            ratios = [a / b for a, b in zip(its, times[last])] if last in times else []
            low, high = peers.interval(ratios) if ratios else ("", "")
            us = statistics.median(its)
            rows.append({"gpu": torch.cuda.get_device_name(), "problem": p.words, "attention": name, "rounds": options.rounds, "us_median": f"{us:.2f}",
                         "gb_per_s": f"{bytes_read / us / 1000:.0f}", "over": f"{statistics.median(ratios):.3f}" if ratios else "",
                         "over_lo": f"{low:.3f}" if ratios else "", "over_hi": f"{high:.3f}" if ratios else "", "last": last,
                         "commit": options.commit, "date": datetime.date.today().isoformat()})  # fmt: skip
            print(f"{p.words:<50} {name:<6} {us:9.2f} us {bytes_read / us / 1000:7.0f} GB/s  {rows[-1]['over']}", file=sys.stderr, flush=True)
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        del copies, graphs
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
