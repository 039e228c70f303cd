"""What a caller with strict types writes: mypy and pyright read it (types_tests.py), and it runs."""

# pyright: strict

from __future__ import annotations

from typing import Any

import flash_ladder
import numpy as np
import numpy.typing as npt

Halves = npt.NDArray[np.float16]


def attend(q: Halves, k: Halves, v: Halves) -> Halves:
    return flash_ladder.attention(q, k, v, causal=True, window=(63, 0), scale=0.125)


def with_sums(q: Halves, k: Halves, v: Halves) -> tuple[Halves, npt.NDArray[np.float32]]:
    out, lse = flash_ladder.attention(q, k, v, return_lse=True, rung="48")
    return out, lse


def as_flash_attn(qkv: Halves) -> Halves:
    out, _, nothing = flash_ladder.flash_attn_qkvpacked_func(qkv, causal=True, return_attn_probs=True)
    assert nothing is None
    return out + flash_ladder.flash_attn_qkvpacked_func(qkv)


def of_lengths(q: Halves, kv: Halves, ends: npt.NDArray[np.int32]) -> Halves:
    return flash_ladder.flash_attn_varlen_kvpacked_func(q, kv, ends, ends, 64, 64, softmax_scale=0.1)


def of_a_cache(q: Halves, cache: Halves, new: Halves) -> Halves:
    return flash_ladder.flash_attn_with_kvcache(q, cache, cache, new, new, cache_seqlens=64, causal=True)


def of_documents(q: Halves, ends: npt.NDArray[np.int32]) -> Halves:
    return flash_ladder.attention(q, q, q, mask_intervals=(0 * ends, ends))


def reasons(problem: str) -> list[str]:
    why = flash_ladder.why(problem)
    return [f"{rung}: {reason}" for rung, reason in why.refused.items()] if why.rung is None else [why.rung, *why.also]


def names() -> list[str]:
    rungs: list[dict[str, Any]] = flash_ladder.rungs()
    return [str(rung["rung"]) for rung in rungs]


def main() -> None:
    rng = np.random.default_rng(0)
    qkv = rng.standard_normal((1, 128, 3, 2, 64)).astype(np.float16)
    q, k, v = (qkv[:, :, part] for part in range(3))
    print(flash_ladder.__version__, attend(q, k, v).dtype, with_sums(q, k, v)[1].shape, as_flash_attn(qkv).shape)
    print(of_lengths(q[0], qkv[0, :, 1:], np.array([0, 64, 128], np.int32)).shape, len(names()), reasons("n=64 d=64")[0])


if __name__ == "__main__":
    main()
