#!/usr/bin/env python3
"""FlashAttention-3's backward pass in its deterministic mode: blocks add to dQ in turn, and two runs give the same bits."""
from fa3_bwd import Gradients
from torch_peer import serve

serve(lambda request: Gradients(request, name="fa3_bwd_inorder", deterministic=True))
