#!/usr/bin/env python3
"""FlashAttention-4's backward pass (flash_attn.cute). It reads what FlashAttention-3's reads here, and as it lies there."""
from __future__ import annotations

from fa3_bwd import Gradients
from fa4 import package, sides
from torch_peer import serve


class GradientsOf4(Gradients):
    def __init__(self, request, name="fa4_bwd", deterministic=False):
        super().__init__(request, name, deterministic, find=lambda: (None, package()[1]))

    def launch(self, launches):
        from flash_attn.cute.interface import _flash_attn_bwd

        left, right = sides(self.window)
        options = dict(softmax_scale=self.scale, causal=self.causal, window_size_left=left, window_size_right=right, deterministic=self.deterministic)
        if self.lengths:
            options |= zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), self.lengths)
        options |= zip(("dq", "dk", "dv"), self.gradients)
        for _ in range(launches):
            _flash_attn_bwd(self.Q, self.K, self.V, self.O, self.dO, self.LSE, **options)


if __name__ == "__main__":
    serve(GradientsOf4)
