#!/usr/bin/env python3
"""FlashAttention-4's backward pass in its deterministic mode: blocks add to dQ in turn."""
from fa4_bwd import GradientsOf4
from torch_peer import serve

if __name__ == "__main__":
    serve(lambda request: GradientsOf4(request, name="fa4_bwd_inorder", deterministic=True))
