#!/usr/bin/env python3
"""FlashAttention-3: the package flash_attn_interface (flash-attention/hopper) where it is installed, or else the extension that xformers
builds from the same source, without the rest of xformers."""
from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from pathlib import Path

from flash_attn_peer import FlashAttnContestant, of_package
from torch_peer import Refusal, serve, torch

# Of torch.ops.flash_attn_3.fwd, between V and softmax_scale: k_new, v_new, qv, out; cu_seqlens_q, _k, _k_new, seqused_q, _k; max_seqlen_q, _k;
# page_table, kv_batch_idx, leftpad_k; rotary_cos, rotary_sin, seqlens_rotary; q_descale, k_descale, v_descale.
NOT_GIVEN = (None,) * 20
# Behind is_causal and the window: attention_chunk, softcap, rotary_interleaved, scheduler_metadata, num_splits, pack_gqa, sm_margin.
DEFAULTS = (0, 0.0, True, None, 1, None, 0)


def file_of(package: str, path: str) -> Path | None:
    """A file of an installed package, which is not imported for it."""
    spec = importlib.util.find_spec(package)
    folders = spec.submodule_search_locations if spec else None
    return next((file for folder in folders or () if (file := Path(folder) / path).is_file()), None)


def load_extension() -> str:
    """Makes torch.ops.flash_attn_3 of xformers' extension, and says what it is."""
    extension = file_of("xformers", "flash_attn_3/_C.so")
    if extension is None:
        raise Refusal("no xformers with a flash_attn_3/_C.so")
    # The extension asks for the runtime of CUDA 12 by its name, also beside a PyTorch of CUDA 13: who has loaded it has found it.
    if runtime := file_of("nvidia", "cuda_runtime/lib/libcudart.so.12"):
        ctypes.CDLL(str(runtime), mode=ctypes.RTLD_GLOBAL)
    try:
        torch.ops.load_library(str(extension))
    except OSError as error:
        raise Refusal(f"xformers' FlashAttention-3 does not load: {error}") from None

    try:
        release = importlib.metadata.version("xformers")
    except importlib.metadata.PackageNotFoundError:
        release = "without a version"
    return f"flash_attn_interface as xformers {release} builds it"


def of_xformers():
    whose = load_extension()

    def attention(Q, K, V, softmax_scale, causal, window_size, lengths):
        given = list(NOT_GIVEN)
        if lengths:
            given[4:6], given[9:11] = lengths[:2], lengths[2:]
        return torch.ops.flash_attn_3.fwd(Q, K, V, *given, softmax_scale, causal, *window_size, *DEFAULTS)[0]

    return attention, whose


def find():
    try:
        return of_package("flash_attn_interface")
    except Refusal as no_package:
        try:
            return of_xformers()
        except Refusal as no_xformers:
            raise Refusal(f"{no_package}; {no_xformers}") from None


if __name__ == "__main__":
    serve(lambda request: FlashAttnContestant(request, name="fa3", find=find))
