"""Prefill of a model of Llama 3 8B's shape with random weights, in bf16: tokens per second with different attentions, in turns.
    python3 python/measure/prefill.py [--tokens 8192 32768] [--rounds 9] [--csv FILE]"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import warnings

import flash_ladder
import torch
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, KV_HEADS, D, INNER = 32, 4096, 32, 8, 128, 14336
warnings.simplefilter("ignore")


def random_matrix(rows: int, columns: int) -> torch.Tensor:
    return torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16).normal_(std=columns**-0.5)


class Layer:
    def __init__(self) -> None:
        self.qkv = random_matrix((HEADS + 2 * KV_HEADS) * D, WIDTH)
        self.o = random_matrix(WIDTH, HEADS * D)
        self.gate_up, self.down = random_matrix(2 * INNER, WIDTH), random_matrix(WIDTH, INNER)
        self.norms = [torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16) for _ in range(2)]

    def __call__(self, x: torch.Tensor, turn, attend) -> torch.Tensor:
        batch, n, _ = x.shape
        q, k, v = F.linear(F.rms_norm(x, (WIDTH,), self.norms[0]), self.qkv).view(batch, n, -1, D).split(
            (HEADS, KV_HEADS, KV_HEADS), 2)  # fmt: skip
        x = x + F.linear(attend(turned(q, turn), turned(k, turn), v).reshape(batch, n, -1), self.o)
        gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.norms[1]), self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


def turned(x: torch.Tensor, turn) -> torch.Tensor:
    """Rotary positions."""
    cos, sin = turn
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def turns(n: int):
    angles = torch.outer(torch.arange(n, device="cuda"), 500_000.0 ** -(torch.arange(D // 2, device="cuda") / (D // 2)))
    return tuple(each.bfloat16()[:, None] for each in (angles.cos(), angles.sin()))


def attentions() -> dict:
    def sdpa(q, k, v):
        by_head = (each.transpose(1, 2) for each in (q, k, v))
        return F.scaled_dot_product_attention(*by_head, is_causal=True, enable_gqa=True).transpose(1, 2)

    known = {"sdpa": sdpa}
    problem = f"b=1 h={HEADS} kv={KV_HEADS} n=8192 d={D} bf16 causal"
    rung = flash_ladder.why(problem, device=0).rung
    if rung is None:
        print(f"No rung takes {problem} here: without flash_ladder", file=sys.stderr)
    else:
        print(f"flash_ladder is {rung}", file=sys.stderr)
        known["flash_ladder"] = lambda q, k, v: flash_ladder.attention(q, k, v, causal=True)
    try:
        from flash_attn import flash_attn_func

        known["flash_attn"] = lambda q, k, v: flash_attn_func(q, k, v, causal=True)
    except ImportError:
        pass
    return known


def milliseconds(call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, nargs="+", default=[8192, 32768])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--csv", help="where the rows go, too")
    options = parser.parse_args()
    torch.manual_seed(0)
    layers, rows = [Layer() for _ in range(LAYERS)], []
    for n in options.tokens:
        turn, x = turns(n), torch.randn(1, n, WIDTH, device="cuda", dtype=torch.bfloat16)
        q, k, v = (torch.randn(1, n, heads, D, device="cuda", dtype=torch.bfloat16) for heads in (HEADS, KV_HEADS, KV_HEADS))

        def forward(attend):
            hidden = x
            for layer in layers:
                hidden = layer(hidden, turn, attend)
            return hidden

        known = attentions()
        found = {name: forward(attend) for name, attend in known.items()}  # and everybody is warm
        whole, alone = ({name: [] for name in known} for _ in range(2))
        for _ in range(options.rounds):
            for name, attend in known.items():
                whole[name].append(milliseconds(lambda: forward(attend)))
                alone[name].append(milliseconds(lambda: [attend(q, k, v) for _ in range(LAYERS)]))
        for name in known:
            ratios = [a / b for a, b in zip(whole["sdpa"], whole[name])]
            difference = (found[name] - found["sdpa"]).float().norm() / found["sdpa"].float().norm()
            ms = statistics.median(whole[name])
            rows.append({
                "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "attention": name, "tokens": n,
                "rounds": options.rounds, "ms": round(ms, 2), "tokens_per_s": round(n / ms * 1e3),
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
