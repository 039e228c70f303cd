#!/usr/bin/env python3
"""FlexAttention's gradients, of the same masks as flex.py. The forward pass before them is not timed, and keeps what they need."""
from __future__ import annotations

from flex import Flex
from torch_peer import SdpaGradients, serve


class FlexGradients(Flex, SdpaGradients):
    FEATURES = Flex.FEATURES | {"backward"}

    def __init__(self, request):
        SdpaGradients.__init__(self, request, name="flex_bwd", backend="", layout="bhnd")

    def take(self, request):
        super().take(request)
        from torch._functorch import config

        config.donated_buffer = False  # one forward pass, and many backward passes behind it


if __name__ == "__main__":
    serve(FlexGradients)
