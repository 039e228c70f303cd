"""Prefill of a model of Llama 3 8B's shape with random weights: tokens per second with different attentions, in turns. Without a GPU
the model is a tiny one, and rungs are emulated.
    python3 python/measure/prefill.py [--tokens 8192 32768] [--rungs 38_seam 99_mine] [--fp16] [--dense] [--all-heads] [--csv FILE]"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
import warnings
from typing import NamedTuple

import flash_ladder
import torch
import torch.nn.functional as F

warnings.simplefilter("ignore")
D = 128


class Shape(NamedTuple):
    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    tokens: list[int]


LLAMA_8B, TINY = Shape(32, 4096, 32, 8, 14336, [8192, 32768]), Shape(2, 256, 2, 1, 512, [256])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Layer:
    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        def random_matrix(rows: int, columns: int) -> torch.Tensor:
            return torch.empty(rows, columns, device=DEVICE, dtype=dtype).normal_(std=columns**-0.5)

        self.shape, width = shape, shape.width
        self.qkv = random_matrix((shape.heads + 2 * shape.kv_heads) * D, width)
        self.o = random_matrix(width, shape.heads * D)
        self.gate_up, self.down = random_matrix(2 * shape.inner, width), random_matrix(width, shape.inner)
        self.norms = [torch.ones(width, device=DEVICE, dtype=dtype) for _ in range(2)]

    def __call__(self, x: torch.Tensor, turn, attend) -> torch.Tensor:
        batch, n, width = x.shape
        q, k, v = F.linear(F.rms_norm(x, (width,), self.norms[0]), self.qkv).view(batch, n, -1, D).split(
            (self.shape.heads, self.shape.kv_heads, self.shape.kv_heads), 2)  # fmt: skip
        x = x + F.linear(attend(turned(q, turn), turned(k, turn), v).reshape(batch, n, -1), self.o)
        gate, up = F.linear(F.rms_norm(x, (width,), self.norms[1]), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


def turned(x: torch.Tensor, turn) -> torch.Tensor:
    """Rotary positions."""
    cos, sin = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def turns(n: int, dtype: torch.dtype):
    angles = torch.outer(torch.arange(n, device=DEVICE), 500_000.0 ** -(torch.arange(D // 2, device=DEVICE) / (D // 2)))
    return tuple(each.to(dtype)[:, None] for each in (angles.cos(), angles.sin()))


def attentions(rungs: list[str] | None, problem: str, causal: bool) -> dict:
    def sdpa(q, k, v):
        by_head = (each.transpose(1, 2) for each in (q, k, v))
        return F.scaled_dot_product_attention(*by_head, is_causal=causal, enable_gqa=True).transpose(1, 2)

    def ladder(rung):
        return lambda q, k, v: flash_ladder.attention(q, k, v, causal=causal, rung=rung)

    known = {"sdpa": sdpa}
    if rungs:
        return {**known, **{rung: ladder(rung) for rung in rungs}}
    rung = flash_ladder.why(problem, device=0 if DEVICE == "cuda" else None).rung
    if rung is None:
        print(f"No rung takes {problem} here: without flash_ladder", file=sys.stderr)
    else:
        print(f"flash_ladder is {rung}", file=sys.stderr)
        known["flash_ladder"] = ladder(None)
    try:
        from flash_attn import flash_attn_func

        known["flash_attn"] = lambda q, k, v: flash_attn_func(q, k, v, causal=causal)
    except ImportError:
        pass
    return known


def milliseconds(call) -> float:
    if DEVICE == "cpu":
        began = time.perf_counter()
        call()
        return (time.perf_counter() - began) * 1e3
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    shape = LLAMA_8B if DEVICE == "cuda" else TINY
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=shape.tokens)
    parser.add_argument("--rounds", type=int, default=9 if DEVICE == "cuda" else 1)
    parser.add_argument("--rungs", nargs="+", help="these beside SDPA, and not the one that flash_ladder takes")
    parser.add_argument("--fp16", action="store_true", help="and not bf16")
    parser.add_argument("--dense", action="store_true", help="no causal mask: a model that reads and does not write")
    parser.add_argument("--all-heads", action="store_true", help="as many heads of keys as of queries")
    parser.add_argument("--csv", help="where the rows go, too")
    options = parser.parse_args(arguments)
    dtype = torch.float16 if options.fp16 else torch.bfloat16
    if options.all_heads:
        shape = shape._replace(kv_heads=shape.heads)
    torch.manual_seed(0)
    layers, rows = [Layer(shape, dtype) for _ in range(shape.layers)], []
    for n in options.tokens:
        turn, x = turns(n, dtype), torch.randn(1, n, shape.width, device=DEVICE, dtype=dtype)
        q, k, v = (torch.randn(1, n, heads, D, device=DEVICE, dtype=dtype) for heads in (shape.heads, shape.kv_heads, shape.kv_heads))

        def forward(attend):
            hidden = x
            for layer in layers:
                hidden = layer(hidden, turn, attend)
            return hidden

        problem = f"h={shape.heads} kv={shape.kv_heads} n={n} d={D}" + " bf16" * (not options.fp16) + " causal" * (not options.dense)
        known = attentions(options.rungs, problem, not options.dense)
        found = {name: forward(attend) for name, attend in known.items()}  # and everybody is warm
        whole, alone = ({name: [] for name in known} for _ in range(2))
        for _ in range(options.rounds):
            for name, attend in known.items():
                whole[name].append(milliseconds(lambda: forward(attend)))
                alone[name].append(milliseconds(lambda: [attend(q, k, v) for _ in layers]))
        for name in known:
            ratios = [a / b for a, b in zip(whole["sdpa"], whole[name])]
            difference = (found[name] - found["sdpa"]).float().norm() / found["sdpa"].float().norm()
            ms = statistics.median(whole[name])
            rows.append({
                "gpu": torch.cuda.get_device_name() if DEVICE == "cuda" else "emulator", "torch": torch.__version__, "attention": name,
                "tokens": n, "rounds": options.rounds, "ms": round(ms, 2), "tokens_per_s": round(n / ms * 1e3),
                "attention_share": round(statistics.median(alone[name]) / ms, 3), "over_sdpa": round(statistics.median(ratios), 4),
                "over_sdpa_least": round(min(ratios), 4), "over_sdpa_most": round(max(ratios), 4),
                "unlike_sdpa": f"{difference.item():.1e}",
            })  # fmt: skip
            print(rows[-1], flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
