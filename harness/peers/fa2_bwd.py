#!/usr/bin/env python3
"""FlashAttention-2's backward pass as PyTorch ships it, on contiguous [batch, heads, n, d]: the layout of the ladder's stages."""
from torch_peer import SdpaGradients, serve

serve(lambda request: SdpaGradients(request, name="fa2_bwd", backend="FLASH_ATTENTION", layout="bhnd"))
