"""What trained heads ask and offer, small enough for a repository: trained.npz becomes harness/problem/trained.bin.

Four heads, one of each layer. Before the rotation by position, Q and K of a head vary in few directions: eight of 128 hold 82 to 90 % of their
energy. Kept are those eight, each token's share of them in eight bits, and how wide the rest scatters in each column. Of each head, Q then K,
little-endian: 8 scales, f32; 8 x 128 directions, f32; 128 widths, f32; 2048 x 8 shares, signed bytes. harness/problem/trained.cpp reads it.
Needs numpy.
"""
from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

KEPT = ((0, 2), (1, 0), (2, 1), (3, 3))  # layer and head
RANK, HEAD_DIM, N = 8, 128, 2048


def unrotated(x: np.ndarray) -> np.ndarray:
    """train.rotated, backwards."""
    half = HEAD_DIM // 2
    angle = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(half) / half)
    low, high = x[:, :half], x[:, half:]
    return np.concatenate([low * np.cos(angle) + high * np.sin(angle), high * np.cos(angle) - low * np.sin(angle)], 1)


def packed(x: np.ndarray) -> bytes:
    left, strength, directions = np.linalg.svd(x, full_matrices=False)
    shares = left[:, :RANK] * strength[:RANK]
    scales = np.abs(shares).max(0) / 127
    shares = np.round(shares / scales)
    widths = (x - (shares * scales) @ directions[:RANK]).std(0)
    return b"".join(part.astype(kind).tobytes() for part, kind in ((scales, "<f4"), (directions[:RANK], "<f4"), (widths, "<f4"), (shares, "i1")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, help="trained.npz of tools.trained.train")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "harness/problem/trained.bin")
    options = parser.parse_args()
    heads = np.load(options.kept)
    options.out.write_bytes(b"".join(packed(unrotated(heads[which][at].astype(np.float64))) for at in KEPT for which in "QK"))


if __name__ == "__main__":
    main()
