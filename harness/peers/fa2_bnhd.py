#!/usr/bin/env python3
"""FlashAttention-2 as PyTorch ships it, on [batch, n, heads, d]: the layout of FlashAttention's own interface."""
from torch_peer import SdpaContestant, serve

serve(lambda request: SdpaContestant(request, name="fa2_bnhd", backend="FLASH_ATTENTION", layout="bnhd"))
