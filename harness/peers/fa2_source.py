#!/usr/bin/env python3
"""FlashAttention-2 from its own source: the flash_attn package, where it is installed."""
from flash_attn_peer import FlashAttnContestant, of_package
from torch_peer import serve

serve(lambda request: FlashAttnContestant(request, name="fa2_source", find=lambda: of_package("flash_attn")))
