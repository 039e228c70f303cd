#!/usr/bin/env python3
"""cuDNN's attention through PyTorch, on [batch, n, heads, d], as models usually hold their tensors."""
from torch_peer import SdpaContestant, serve

serve(lambda request: SdpaContestant(request, name="cudnn_bnhd", backend="CUDNN_ATTENTION", layout="bnhd"))
