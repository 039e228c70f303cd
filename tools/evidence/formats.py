"""What keys and values in a byte, or in half of one, cost in accuracy, whatever kernel reads them: the error of O in double precision.
decoding/d13_bytes/README.md and d17_nibbles show it. And what queries and keys in a byte cost, of which fp8/f05_exact speaks.
    python3 -m tools.evidence.formats"""

from __future__ import annotations

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


FORMATS = {
    "e4m3, a scale a head": lambda x: scaled(x, 448, e4m3),
    "int8, a scale a head": lambda x: scaled(x, 127, np.rint),
    "int8, a scale a token": lambda x: scaled(x, 127, np.rint, 1),
    "int4, a scale a token": lambda x: scaled(x, 7, np.rint, 1),
    "int4, a scale a head": lambda x: scaled(x, 7, np.rint),
}


OF_QUERIES = {
    "e4m3, a scale a head": lambda x: scaled(x, 448, e4m3),
    "int8, a scale a head": lambda x: scaled(x, 127, np.rint),
    "int8, a scale a row": lambda x: scaled(x, 127, np.rint, 1),
}


def less_mean(K: np.ndarray) -> np.ndarray:
    """Every key less the mean of all: each query's scores change by one number, and no weight does."""
    return K - K.mean(0)


def attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    S = Q @ K.T / np.sqrt(D)
    P = np.exp(S - S.max(1, keepdims=True))
    return P @ V / P.sum(1, keepdims=True)


def table(kinds: tuple[str, ...], formats: dict) -> None:
    """Of each format what it makes of Q, K and V, and the root mean square error of O over that of O."""
    print(f"| | {' | '.join(kinds)} |")
    print("|---|" + "---:|" * len(kinds))
    for name, rounded in formats.items():
        errors = []
        for kind in kinds:
            squares = sizes = 0.0
            for seed in range(4):
                Q, K, V = inputs(kind, seed)
                right = attention(Q, K, V)
                squares += np.square(attention(*rounded(Q, K, V)) - right).sum()
                sizes += np.square(right).sum()
            errors.append(f"{100 * np.sqrt(squares / sizes):.2f} %")
        print(f"| {name} | {' | '.join(errors)} |")


def main() -> None:
    table(("normal", "trained", "outliers"), {name: lambda Q, K, V, of=of: (Q, of(K), of(V)) for name, of in FORMATS.items()})
    print()
    plain = {name: lambda Q, K, V, of=of: (of(Q), of(K), V) for name, of in OF_QUERIES.items()}
    smooth = {f"{name}, K less its mean": lambda Q, K, V, of=of: (of(Q), of(less_mean(K)), V) for name, of in OF_QUERIES.items()}
    table(("normal", "trained", "outliers", "shifted"), plain | smooth)


if __name__ == "__main__":
    main()
