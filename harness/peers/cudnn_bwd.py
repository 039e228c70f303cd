#!/usr/bin/env python3
"""cuDNN's backward pass through PyTorch, on contiguous [batch, heads, n, d]: the layout of the ladder's stages."""
from torch_peer import SdpaGradients, serve

serve(lambda request: SdpaGradients(request, name="cudnn_bwd", backend="CUDNN_ATTENTION", layout="bhnd"))
