"""The input sets of the ladder (harness/problem/inputs.cpp) that a rate may depend on, as tensors [batch, n, heads, d] of PyTorch: what N(0, 1)
drew becomes them. The numbers are not those of the harness, which has a generator of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

SETS = ("normal", "sinks", "sinks14", "trained", "peaky", "large_logits")
HEIGHTS, LEAN = {"sinks": 7.0, "sinks14": 14.0}, 2.0  # of the score of key 0; of queries towards (1, ..., 1)
FACTORS = {"peaky": 16.0, "large_logits": 8.0}  # of Q and of K
TRAINED = Path(__file__).resolve().parents[2] / "harness/problem/trained.bin"
RANK, COLUMNS, TOKENS = 8, 128, 2048
PACKED = np.dtype([("scales", "<f4", RANK), ("directions", "<f4", (RANK, COLUMNS)), ("widths", "<f4", COLUMNS), ("shares", "i1", (TOKENS, RANK))])


def trained(drawn: torch.Tensor, is_key: bool) -> torch.Tensor:
    """Queries or keys of a trained model's four heads by turns, as harness/problem/trained.cpp makes them of what is drawn."""
    batch, n, heads, d = drawn.shape
    if d > COLUMNS:
        raise ValueError(f"trained queries and keys have {COLUMNS} columns, and {d} are wanted")
    packed = np.fromfile(TRAINED, PACKED).reshape(-1, 2)[:, int(is_key)]
    position = torch.arange(n, device=drawn.device)
    token = torch.where(position < TOKENS, position, 1 + (position - TOKENS) % (TOKENS - 1))
    angle = position[:, None].double() * 10000.0 ** (-torch.arange(COLUMNS // 2, device=drawn.device).double() / (COLUMNS // 2))
    rows = torch.zeros(batch, n, heads, COLUMNS, device=drawn.device)
    rows[..., :d] = drawn.float()
    for number in range(batch * heads):
        of = {name: torch.from_numpy(packed[number % len(packed)][name].copy()).to(drawn.device) for name in PACKED.names}
        row = rows[number // heads, :, number % heads]
        row.mul_(of["widths"]).add_((of["shares"].float() * of["scales"])[token] @ of["directions"])
        low, high = row[:, : COLUMNS // 2].double(), row[:, COLUMNS // 2 :].double()
        row[:] = torch.cat([low * angle.cos() - high * angle.sin(), low * angle.sin() + high * angle.cos()], 1)
    return rows[..., :d].to(drawn.dtype)


def shaped(inputs: str, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Q and K of this set, of N(0, 1)."""
    if inputs == "trained":
        return trained(q, False), trained(k, True)
    if height := HEIGHTS.get(inputs):
        q, k = q + LEAN * q.shape[-1] ** -0.5, k.clone()
        k[:, 0] = height / LEAN
    factor = FACTORS.get(inputs, 1.0)
    return q * factor, k * factor
