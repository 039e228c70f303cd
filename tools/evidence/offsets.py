"""What the place of a row's largest weight costs where weights are e4m3, whatever kernel makes them: fp8/README.md shows it.
A row of the file is an offset, 2 to which a row's largest weight is, inputs, and tiles of 128 keys. One tile has its own maximum. Of many,
the first tile's stays until a sum says that it must not, as in fp8/f01_e4m3: 16 rows and their lanes of 32 weights, of a tile, which
are made again where a lane's add up to 448. All else is in double precision. The error of O is root mean square, and the largest,
over the root mean square of O; and each over that of the plain attention that checks take for e4m3, whose largest weight is 1 to 2.
    python3 -m tools.evidence.offsets [--csv docs/results/weight_offsets.csv]"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from tools.evidence.formats import e4m3

OFFSETS = (3, 3.75, 4, 5, 6, 7, 8)
LARGEST, WHOLE, LEAST = 448, -6, -9  # of e4m3: its largest number; below 2^-6 it loses bits; its smallest is 2^-9, so 2^-10 becomes 0
QUERIES, KEYS, D, WARP_ROWS = 128, 128, 128, 16  # of a tile
LANE = np.arange(KEYS) % 8 // 2  # whose weight it is: of each eight keys a lane of four has two
TILES, SEEDS = (1, 64), range(4)
FACTORS = {"normal": 1, "peaky": 16, "sink": 1}  # the deviation of Q and K


def inputs(kind: str, tiles: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores in powers of two, [queries, keys], and V. With a sink the first key weighs as much as all others, and its value is 0."""
    rng = np.random.default_rng(seed)
    Q, K, V = (rng.standard_normal((rows, D)) for rows in (QUERIES, tiles * KEYS, tiles * KEYS))
    S = FACTORS[kind] ** 2 * (Q @ K.T) / np.sqrt(D) * np.log2(np.e)
    if kind == "sink":
        S[:, 0], V[0] = np.log2(np.exp2(S[:, 1:]).sum(1)), 0
    return S, V


def exact(S: np.ndarray, V: np.ndarray) -> np.ndarray:
    P = np.exp2(S - S.max(1, keepdims=True))
    return P @ V / P.sum(1, keepdims=True)


def plain(S: np.ndarray, V: np.ndarray, third: int) -> np.ndarray:
    """All keys at once, and three ways to be off from the maximum, as in harness/problem/reference.cpp."""
    golden = (np.arange(1, len(S) + 1) * 0.6180339887498949) % 1
    P = np.exp2(S - S.max(1, keepdims=True) + (np.zeros(len(S)), golden, np.full(len(S), 2 / 3))[third][:, None])
    return e4m3(P) @ V / P.sum(1, keepdims=True)


def in_tiles(S: np.ndarray, V: np.ndarray, offset: float) -> tuple[np.ndarray, float]:
    """O, and of warps and tiles behind the first the share whose weights are made twice."""
    rows, warps, tiles = len(S), len(S) // WARP_ROWS, S.shape[1] // KEYS
    of_warp, room = np.arange(rows) // WARP_ROWS, max(np.log2(LARGEST / (KEYS / 4)) - offset, 0)
    base, careful, again = np.full(rows, -np.inf), np.zeros(warps, bool), 0
    O, sums = np.zeros((rows, V.shape[1])), np.zeros(rows)
    for tile in range(tiles):
        here = slice(tile * KEYS, (tile + 1) * KEYS)
        own, before = S[:, here].max(1) - offset, base.copy()

        def raise_where(warp: np.ndarray) -> None:
            base[:] = np.where(warp[of_warp], np.maximum(base, own), base)

        if tile == 0:
            raise_where(~careful)
        else:
            raise_where(careful & (own - base > room).reshape(warps, -1).any(1))
        P = np.exp2(np.minimum(S[:, here] - base[:, None], 100))
        lanes = np.stack([P[:, LANE == lane].sum(1) for lane in range(4)], 1)
        full = (lanes >= LARGEST).reshape(warps, -1).any(1) & (tile > 0)
        raise_where(full)
        careful |= full
        again += full.sum()
        P = np.exp2(S[:, here] - base[:, None])
        kept = np.exp2(before - base)
        O, sums = O * kept[:, None] + e4m3(P) @ V[here], sums * kept + P.sum(1)
    return O / sums[:, None], again / max(warps * (tiles - 1), 1)


class Errors:
    """Of O, over its own root mean square."""

    def __init__(self) -> None:
        self.squares = self.sizes = self.largest = 0.0
        self.count = 0

    def add(self, right: np.ndarray, found: np.ndarray) -> None:
        self.squares += np.square(found - right).sum()
        self.sizes += np.square(right).sum()
        self.largest = max(self.largest, np.abs(found - right).max())
        self.count += right.size

    def both(self) -> tuple[float, float]:
        return np.sqrt(self.squares / self.sizes), self.largest / np.sqrt(self.sizes / self.count)


def rows_of(kind: str, tiles: int, offsets: tuple[float, ...] = OFFSETS) -> list[dict[str, str]]:
    of_plain, of_offset, again = [Errors() for _ in range(3)], [Errors() for _ in offsets], [0.0 for _ in offsets]
    for seed in SEEDS:
        S, V = inputs(kind, tiles, seed)
        right = exact(S, V)
        for third, found in enumerate(of_plain):
            found.add(right, plain(S, V, third))
        for at, offset in enumerate(offsets):
            O, share = in_tiles(S, V, offset)
            of_offset[at].add(right, O)
            again[at] += share / len(SEEDS)
    rms_of_plain, max_of_plain = (max(each) for each in zip(*(found.both() for found in of_plain)))
    found = []
    for offset, of, share in zip(offsets, of_offset, again):
        rms, largest = of.both()
        found.append({"offset": f"{offset:g}", "room": f"{np.log2(LARGEST) - offset:.2f}", "alike": f"{int(LARGEST / 2**offset)}",
                      "whole_above": f"{WHOLE - offset:g}", "zero_below": f"{LEAST - 1 - offset:g}", "inputs": kind, "tiles": f"{tiles}",
                      "rms": f"{rms:.3g}", "rms_over_plain": f"{rms / rms_of_plain:.3g}", "max": f"{largest:.3g}",
                      "max_over_plain": f"{largest / max_of_plain:.3g}", "again": f"{share:.3g}" if tiles > 1 else ""})  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="writes them there, too")
    options = parser.parse_args()
    found = [row for kind in FACTORS for tiles in TILES for row in rows_of(kind, tiles)]
    for row in found:
        print(*(f"{cell:>9}" for cell in row.values()))
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main()
