#!/usr/bin/env python3
"""FlashAttention-3's backward pass, from the extension that xformers builds of it. It reads the request's O and LSE, and
[batch, n, heads, d], or sequences one behind the other; the copies into that layout are not timed."""
from __future__ import annotations

from fa3 import load_extension
from flash_attn_peer import FlashAttnContestant
from torch_peer import Refusal, require_gpu, serve, torch

# Of torch.ops.flash_attn_3.bwd, behind the window; and behind deterministic.
SOFTCAP, SM_MARGIN = 0.0, 0


class Gradients(FlashAttnContestant):
    FEATURES = {"causal", "grouped", "cross", "window", "varlen", "backward"}
    OUTPUT = "dQ"

    def __init__(self, request, name="fa3_bwd", deterministic=False, find=lambda: (None, load_extension())):
        self.deterministic = deterministic
        require_gpu()
        if "backward" not in request.get("features", []):
            raise Refusal("gradients alone here")
        super().__init__(request, name, find)

    def take(self, request):
        super().take(request)
        shape = tuple(int(request[size]) for size in ("batch", "heads", "n", "d"))
        self.O, self.dO = (self._packed(self._tensor(request["tensors"][name], shape, self.layout, self.Q.dtype)) for name in ("O", "dO"))
        LSE = self._tensor(request["tensors"]["LSE"], shape[:-1], "bhnd", torch.float32)
        # [batch, heads, n], or [heads, total].
        self.LSE = self._packed(LSE[..., None])[..., 0].T.contiguous() if self.lengths else LSE
        self.gradients = [torch.empty_like(tensor) for tensor in (self.Q, self.K, self.V)]
        self.output = self.gradients[0]

    def _packed(self, tensor):
        """[batch, heads, n, d] as the others lie."""
        tensor = tensor.transpose(1, 2)
        return tensor.flatten(0, 1)[self.rows].contiguous() if self.lengths else tensor

    def launch(self, launches):
        cu_q, cu_k, most_q, most_k = self.lengths or (None,) * 4
        lengths = cu_q, cu_k, None, None, most_q, most_k  # without seqused_q and seqused_k
        for _ in range(launches):
            torch.ops.flash_attn_3.bwd(self.dO, self.Q, self.K, self.V, self.O, self.LSE, *self.gradients, *lengths, self.scale, self.causal, *self.window,
                                       SOFTCAP, self.deterministic, SM_MARGIN)

    def poison(self):
        for gradient in self.gradients:
            gradient.fill_(float("nan"))


if __name__ == "__main__":
    serve(Gradients)
