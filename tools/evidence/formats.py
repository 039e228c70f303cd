"""What keys and values in a byte, or in half of one, cost in accuracy, whatever kernel reads them: the error of O in double precision.
decoding/d24_channels/README.md shows it, and d13_bytes and d17_nibbles a part; and queries and keys in a byte, of which fp8/f05_exact
speaks. A row of the file is a type, what has a scale, inputs, and the error: root mean square over that of O itself.
    python3 -m tools.evidence.formats [--csv docs/results/format_errors.csv]"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

KEYS, QUERIES, D = 2048, 256, 128
RANK, TOKENS = 8, 2048
TRAINED = Path(__file__).parents[2] / "harness/problem/trained.bin"


def trained(head: int, of_keys: bool, rng) -> np.ndarray:
    """Rows of a head of the small model, as harness/problem/trained.cpp makes them."""
    packed = np.dtype([("scales", "f4", RANK), ("directions", "f4", (RANK, D)), ("widths", "f4", D), ("shares", "i1", (TOKENS, RANK))])
    of = np.frombuffer(TRAINED.read_bytes(), packed)[2 * head + of_keys]
    rows = rng.standard_normal((TOKENS, D)) * of["widths"] + (of["shares"] * of["scales"].astype(float)) @ of["directions"]
    angles = np.arange(TOKENS)[:, None] * 10000.0 ** (-np.arange(D // 2) / (D / 2))
    low, high = rows[:, : D // 2], rows[:, D // 2 :]
    return np.concatenate([low * np.cos(angles) - high * np.sin(angles), low * np.sin(angles) + high * np.cos(angles)], 1)


def inputs(kind: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    Q, K, V = (rng.standard_normal((rows, D)) for rows in (QUERIES, KEYS, KEYS))
    if kind == "trained":
        Q, K = trained(seed % 4, False, rng)[-QUERIES:], trained(seed % 4, True, rng)
    if kind == "outliers":  # four columns are sixteen times as large
        K[:, ::32] *= 16
        V[:, ::32] *= 16
        Q[:, ::32] /= 16
    if kind == "shifted":  # four columns of K are the same in all keys, but for what they would be otherwise
        K[:, ::32] += 16
    return Q, K, V


def e4m3(numbers: np.ndarray) -> np.ndarray:
    size = np.minimum(np.abs(numbers), 448)
    step = 2.0 ** (np.maximum(np.floor(np.log2(np.maximum(size, 1e-30))), -6) - 3)
    return np.sign(numbers) * np.minimum(np.rint(size / step) * step, 448)


def scaled(numbers: np.ndarray, largest: float, rounded, axis=None) -> np.ndarray:
    scale = np.abs(numbers).max(axis, keepdims=True) / largest
    return rounded(numbers / scale) * scale


TYPES = {"e4m3": (448, e4m3), "int8": (127, np.rint), "int4": (7, np.rint)}
PER = {"head": None, "token": 1, "channel": 0}  # axes of a head's [keys, columns] over which a scale is
KINDS = ("normal", "trained", "outliers")


OF_QUERIES = {("e4m3", "head"): None, ("int8", "head"): None, ("int8", "row"): 1}  # and axes, of a head's [queries or keys, columns]


def less_mean(K: np.ndarray) -> np.ndarray:
    """Every key less the mean of all: each query's scores change by one number, and no weight does."""
    return K - K.mean(0)


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    S = Q @ K.T / np.sqrt(D)
    P = np.exp(S - S.max(1, keepdims=True))
    return P @ V / P.sum(1, keepdims=True)


def error(kind: str, rounded) -> float:
    """Root mean square, over that of O. `rounded` makes Q, K and V as they are kept."""
    squares = sizes = 0.0
    for seed in range(4):
        Q, K, V = inputs(kind, seed)
        right = attention(Q, K, V)
        squares += np.square(attention(*rounded(Q, K, V)) - right).sum()
        sizes += np.square(right).sum()
    return float(np.sqrt(squares / sizes))


def of_cache(name: str, per: str):
    return lambda Q, K, V: (Q, *(scaled(each, *TYPES[name], PER[per]) for each in (K, V)))


def of_queries(name: str, axis, smooth: bool):
    of = lambda numbers: scaled(numbers, *TYPES[name], axis)
    return lambda Q, K, V: (of(Q), of(less_mean(K) if smooth else K), V)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="writes them there, too")
    options = parser.parse_args()
    rounded = {(name, per): of_cache(name, per) for name in TYPES for per in PER}
    rounded |= {(f"q and k in {name}", f"{per}, K less its mean" if smooth else per): of_queries(name, axis, smooth)
                for (name, per), axis in OF_QUERIES.items() for smooth in (False, True)}
    rows = [{"type": name, "per": per, "inputs": kind, "error": f"{error(kind, of):.7f}", "keys": KEYS, "queries": QUERIES, "d": D}
            for (name, per), of in rounded.items() for kind in (*KINDS, *["shifted"] * (name not in TYPES))]  # fmt: skip
    for row in rows:
        print(f"{row['type']} per {row['per']:<24} {row['inputs']:<9} {100 * float(row['error']):6.2f} %")
    if options.csv:
        with options.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
