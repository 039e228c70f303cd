#!/usr/bin/env python3
"""FlashAttention-2 as PyTorch ships it, on contiguous [batch, heads, n, d]: the layout of the ladder's stages."""
from torch_peer import SdpaContestant, serve

serve(lambda request: SdpaContestant(request, name="fa2", backend="FLASH_ATTENTION", layout="bhnd"))
