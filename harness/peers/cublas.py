#!/usr/bin/env python3
"""A cuBLAS matrix product, 8192^3 in fp16, through PyTorch: the card's thermometer and a ceiling for any attention."""
from torch_peer import GemmContestant, serve

serve(lambda request: GemmContestant(request, name="cublas"))
