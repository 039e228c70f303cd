#!/usr/bin/env python3
"""FlashAttention-3: the flash_attn_interface package (flash-attention/hopper), where it is installed."""
from flash_attn_peer import FlashAttnContestant
from torch_peer import serve

serve(lambda request: FlashAttnContestant(request, name="fa3", module="flash_attn_interface"))
