"""What a call costs on the host, in microseconds: ours, and what else there is. No test.   python3 python/measure/overhead.py"""

from __future__ import annotations

import time
import warnings

import flash_ladder
import numpy as np
import torch

warnings.simplefilter("ignore")
CALLS, ROUNDS = 200, 30  # a driver's queue holds some thousand launches


def microseconds(call) -> float:
    """Of one call, the median of rounds; the GPU catches up between them."""
    each = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        each.append((time.perf_counter() - began) / CALLS * 1e6)
    return float(np.median(each))


def main() -> None:
    print(torch.cuda.get_device_name(), torch.__version__)
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (torch.randn(1, 128, 1, 128, device="cuda", dtype=dtype) for _ in range(3))
        by_head = [each.transpose(1, 2).contiguous() for each in (q, k, v)]
        out = torch.empty_like(q)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        calls = {"torch.empty_like": lambda: torch.empty_like(q), "SDPA": lambda: sdpa(*by_head, is_causal=True)}
        with torch.no_grad():
            if flash_ladder.why(q, k, v, causal=True).rung is not None:
                calls["flash_ladder"] = lambda: flash_ladder.attention(q, k, v, causal=True)
                calls["flash_ladder, out="] = lambda: flash_ladder.attention(q, k, v, causal=True, out=out)
                calls["torch.ops.flash_ladder"] = lambda: torch.ops.flash_ladder.attention(q, k, v, True)
            try:
                from flash_attn import flash_attn_func

                calls["flash-attn"] = lambda: flash_attn_func(q, k, v, causal=True)
            except ImportError:
                pass
            for name, call in calls.items():
                call()
                print(f"{str(dtype):16} {name:24} {microseconds(call):7.1f} us")


if __name__ == "__main__":
    main()
