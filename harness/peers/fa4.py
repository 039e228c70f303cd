#!/usr/bin/env python3
"""FlashAttention-4: the package flash-attn-4 (flash_attn.cute), whose kernels for Hopper compile when they are first called."""
from __future__ import annotations

import importlib.metadata

from flash_attn_peer import FlashAttnContestant
from torch_peer import Refusal, serve


def package():
    """The module flash_attn.cute, and what it is called."""
    try:
        import flash_attn.cute as cute
        release = importlib.metadata.version("flash-attn-4")
    except ImportError as error:
        raise Refusal(f"no flash-attn-4: {error}") from None
    return cute, f"flash-attn-4 {release}"


def sides(window):
    """How far a window reaches, where -1 is without an end."""
    return tuple(None if side < 0 else side for side in window)


def find():
    cute, whose = package()

    def attention(Q, K, V, window_size, lengths, **options):
        options["window_size"] = sides(window_size)
        if not lengths:
            return cute.flash_attn_func(Q, K, V, **options)
        names = "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"
        return cute.flash_attn_varlen_func(Q, K, V, **dict(zip(names, lengths)), **options)

    return attention, whose


if __name__ == "__main__":
    serve(lambda request: FlashAttnContestant(request, name="fa4", find=find))
