#!/usr/bin/env python3
"""FlashAttention-3's backward pass, from the extension that xformers builds of it. It reads the request's O and LSE, and
[batch, n, heads, d]; the copies into that layout are not timed."""
from __future__ import annotations

from fa3 import load_extension
from torch_peer import AttentionContestant, Refusal, require_gpu, serve, torch, version

# Of torch.ops.flash_attn_3.bwd, between dV and softmax_scale: cu_seqlens_q, _k, seqused_q, _k, max_seqlen_q, _k.
NOT_GIVEN = (None,) * 6
NO_WINDOW, NO_SOFTCAP, SM_MARGIN = (-1, -1), 0.0, 0  # behind is_causal, the flag deterministic before the last


class Gradients(AttentionContestant):
    FEATURES = {"causal", "grouped", "cross", "backward"}
    DTYPES = {"fp16", "bf16"}
    OUTPUT = "dQ"

    def __init__(self, request, name="fa3_bwd", deterministic=False):
        require_gpu()
        if "backward" not in request.get("features", []):
            raise Refusal("gradients alone here")
        whose = load_extension()
        self.files, self.gradients, self.deterministic = request["tensors"], None, deterministic
        self.shape = tuple(int(request[size]) for size in ("batch", "heads", "n", "d"))
        super().__init__(request, name, layout="bnhd")
        self.version = f"{whose}, {version()}"

    def launch(self, launches):
        if self.gradients is None:
            self.O, self.dO = (self._tensor(self.files[name], self.shape, self.layout, self.Q.dtype) for name in ("O", "dO"))
            self.LSE = self._tensor(self.files["LSE"], self.shape[:-1], "bhnd", torch.float32)
            self.gradients = [torch.empty_like(tensor) for tensor in (self.Q, self.K, self.V)]
            self.output = self.gradients[0]
        dO, Q, K, V, O, *gradients = (tensor.transpose(1, 2) for tensor in (self.dO, self.Q, self.K, self.V, self.O, *self.gradients))
        for _ in range(launches):
            torch.ops.flash_attn_3.bwd(dO, Q, K, V, O, self.LSE, *gradients, *NOT_GIVEN, self.scale, self.causal, *NO_WINDOW,
                                       NO_SOFTCAP, self.deterministic, SM_MARGIN)

    def poison(self):
        for gradient in self.gradients:
            gradient.fill_(float("nan"))


if __name__ == "__main__":
    serve(Gradients)
