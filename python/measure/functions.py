"""What a function of scores costs a gradient: 82 and 83 without one, 89 with each, in turns, launches in a CUDA graph.
    python3 python/measure/functions.py --csv docs/results/CARD_functions.csv --commit HASH [--rounds 16]
A row is a rung with what it has to do besides: `us_median` of a launch, and `over`, the rate over that of the first row of its problem:
the median of the rounds' ratios, between `over_lo` and `over_hi` (95 %)."""

from __future__ import annotations

import argparse
import csv
import datetime
import math
import random
import statistics
import sys

import choice
import peers
import torch
from flash_ladder import _attention, _native
from flash_ladder._arrays import library_of
from peers import DEVICE, Problem, Tensors

TIMED_MS = 20  # of a round: as long of itself before it, not timed


def problems() -> list[tuple[Problem, str, list[str]]]:
    """Each with the rung that it is held to, which has no function, and the functions."""
    long = Problem(torch.bfloat16, backward=True, batch=1, heads=16, kv_heads=16, n_q=16384, n_k=16384, causal=True)
    short = long._replace(d=64, heads=64, kv_heads=8, n_q=8192, n_k=8192, window=128)
    return [(long, "82_nearby", ["", "softcap", "slopes", "sink"]), (short, "83_d64", ["", "sink"])]


def gradients(p: Problem, t: Tensors, rung: str, function: str):
    """A call of a rung's, with this function or none."""
    q, k, v = (each.detach() for each in t.qkv)
    of_heads = torch.linspace(0.01, 0.5, p.heads, device=DEVICE) if function in ("slopes", "sink") else None
    options = (p.causal, None, None if p.window is None else (p.window, 0), 50.0 if function == "softcap" else 0.0,
               of_heads if function == "slopes" else None, of_heads if function == "sink" else None)  # fmt: skip
    call = _attention.Call(library_of(q), q, k, v, *options)
    call.gradient_plan = lambda _: _native.plan(f"backward {call.text()}", rung, call.device, False, call.rows, False)
    forward = _attention.run(q, k, v, *options, True, None, None, None)
    return lambda: list(call.gradients(t.d_out, *forward, False))


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--rounds", type=int, default=16 if DEVICE == "cuda" else 1)
    options = parser.parse_args(arguments)
    rows = []
    for p, plain, functions in problems():
        if DEVICE == "cpu":
            p = choice.tiny(p)
        t = Tensors(p)
        calls = {(plain, ""): gradients(p, t, plain, "")} | {("89_chainrule", f): gradients(p, t, "89_chainrule", f) for f in functions}
        first = {who: choice.launches_of([call], 2).milliseconds() for who, call in calls.items()}
        graphs = {who: choice.launches_of([call], max(math.ceil(TIMED_MS / first[who]), 1) if DEVICE == "cuda" else 1) for who, call in calls.items()}
        names, times = list(graphs), {who: [] for who in graphs}
        for turn in range(options.rounds):
            random.Random(turn).shuffle(names)
            for who in names:
                graphs[who].replay()
                times[who].append(graphs[who].milliseconds())
        for (rung, function), its in times.items():
            ratios = [b / a for a, b in zip(its, times[plain, ""])]
            low, high = peers.interval(ratios)
            rows.append({"gpu": torch.cuda.get_device_name() if DEVICE == "cuda" else "emulator", "problem": p.words, "rung": rung, "function": function,
                         "rounds": len(its), "us_median": f"{statistics.median(its) * 1e3:.1f}", "over": f"{statistics.median(ratios):.4f}",
                         "over_lo": f"{low:.4f}", "over_hi": f"{high:.4f}", "commit": options.commit, "date": datetime.date.today().isoformat()})  # fmt: skip
            print(f"{p.words:<60} {rung:<14} {function:<8} {rows[-1]['us_median']:>10} us  {rows[-1]['over']}", file=sys.stderr, flush=True)
    with open(options.csv, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
