"""What a call costs on the host, in microseconds, in turns: ours, and what else there is. No test.
    python3 python/measure/overhead.py [--csv FILE]"""

from __future__ import annotations

import argparse
import csv
import time
import warnings

import flash_ladder
import numpy as np
import torch

warnings.simplefilter("ignore")
CALLS, ROUNDS = 200, 40  # a driver's queue holds some thousand launches


def microseconds(call) -> float:
    """Of one call, the mean of a round; the GPU catches up before it."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - began) / CALLS * 1e6


def calls_in(dtype: torch.dtype) -> dict:
    q, k, v = (torch.randn(1, 128, 1, 128, device="cuda", dtype=dtype) for _ in range(3))
    by_head = [each.transpose(1, 2).contiguous() for each in (q, k, v)]
    out = torch.empty_like(q)
    sdpa = torch.nn.functional.scaled_dot_product_attention
    calls = {"torch.empty_like": lambda: torch.empty_like(q), "SDPA": lambda: sdpa(*by_head, is_causal=True)}
    if flash_ladder.why(q, k, v, causal=True).rung is not None:
        calls["flash_ladder"] = lambda: flash_ladder.attention(q, k, v, causal=True)
        calls["flash_ladder, out="] = lambda: flash_ladder.attention(q, k, v, causal=True, out=out)
        calls["torch.ops.flash_ladder"] = lambda: torch.ops.flash_ladder.attention(q, k, v, True)
        calls["flash_ladder, behind C"] = behind_c(q, k, v, out)
    if flash_ladder.why("lens_q=128 lens_k=128 d=128 bf16 causal", device=0).rung is not None and dtype == torch.bfloat16:
        ends = torch.tensor([0, 128], device="cuda", dtype=torch.int32)
        packed = [*(each[0] for each in (q, k, v)), ends, ends, 128, 128]
        calls["flash_ladder, varlen"] = lambda: flash_ladder.flash_attn_varlen_func(*packed, causal=True)
    if flash_ladder.why("h=32 kv=8 nq=1 nk=1024 d=128 cache" + " bf16" * (dtype == torch.bfloat16), device=0).rung is not None:
        query, keys, values, *new = (torch.randn(1, n, heads, 128, device="cuda", dtype=dtype) for n, heads in ((1, 32), (1024, 8), (1024, 8), (1, 8), (1, 8)))
        used, with_cache = torch.tensor([1000], device="cuda", dtype=torch.int32), flash_ladder.flash_attn_with_kvcache
        calls["flash_ladder, a cache"] = lambda: with_cache(query, keys, values, cache_seqlens=used, causal=True)
        calls["flash_ladder, a new token"] = lambda: with_cache(query, keys, values, *new, cache_seqlens=used, causal=True)
    try:
        from flash_attn import flash_attn_func

        calls["flash-attn"] = lambda: flash_attn_func(q, k, v, causal=True)
    except ImportError:
        pass
    return calls


def behind_c(q, k, v, out):
    """The library's part: what a kernel asks for, and the launch."""
    from flash_ladder import _attention

    before = set(_attention._ready)
    flash_ladder.attention(q, k, v, causal=True, out=out, scale=0.1)
    ((_, ready),) = [each for each in _attention._ready.items() if each[0] not in before]
    addresses, stream = [each.data_ptr() for each in (q, k, v, out)], torch.cuda.current_stream().cuda_stream
    return lambda: ready.plan.run(ready.layouts, addresses, stream, (q, k, v, out))


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", help="where the rows go, too")
    options = parser.parse_args()
    calls = {(str(dtype).rpartition(".")[2], name): call
             for dtype in (torch.float16, torch.bfloat16) for name, call in calls_in(dtype).items()}  # fmt: skip
    for call in calls.values():
        microseconds(call)
    rounds = [{name: microseconds(call) for name, call in calls.items()} for _ in range(ROUNDS)]
    rows = []
    for dtype, name in calls:
        each = [round_[dtype, name] for round_ in rounds]
        rows.append({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "dtype": dtype, "call": name, "rounds": ROUNDS,
                     "us_median": round(float(np.median(each)), 2), "us_least": round(min(each), 2)})  # fmt: skip
        print(f"{dtype:10} {name:25} {rows[-1]['us_median']:7.1f} us, at least {rows[-1]['us_least']:.1f}", flush=True)
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
