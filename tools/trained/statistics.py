"""What scores of a trained model look like, head by head, as tools/trained/heads.csv: of queries 256 to 2047, under the causal mask. Needs numpy.

  near 16, near 128   how much of a query's weight its own key and the 15 (127) before it hold
  key 0               ... and the first key
  keys that count     e to the entropy of the weights
  spread              standard deviation of a query's scores, in natural units
  key 0 above         how far the first key's score stands above the median of the others
  rise                powers of two from the largest weight of the first 128 keys to the largest of all
  surprised           share of queries for which that is more than 2^14: in f16 a warp is surprised at 30000, of a lane's sum
"""
from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

N, TILE, FROM, LOG2E = 2048, 128, 256, 1.44269504


def of_head(Q: np.ndarray, K: np.ndarray) -> list[float]:
    scores = Q.astype(np.float64) @ K.astype(np.float64).T / np.sqrt(Q.shape[1])
    found = []
    for query in range(FROM, N):
        row = scores[query, :query + 1]
        weights = np.exp(row - row.max())
        weights /= weights.sum()
        rise = (row.max() - row[:TILE].max()) * LOG2E
        found.append((weights[-16:].sum(), weights[-128:].sum(), weights[0], np.exp(-(weights * np.log(weights + 1e-300)).sum()), row.std(),
                      row[0] - np.median(row[1:]), rise, rise > 14))
    return list(np.mean(found, 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kept", type=Path, help="trained.npz of tools.trained.train")
    heads = np.load(parser.parse_args().kept)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["layer", "head", "near 16", "near 128", "key 0", "keys that count", "spread", "key 0 above", "rise", "surprised"])
    for layer in range(heads["Q"].shape[0]):
        for head in range(heads["Q"].shape[1]):
            near, tile, sink, count, spread, above, rise, surprised = of_head(heads["Q"][layer, head], heads["K"][layer, head])
            out.writerow([layer + 1, head + 1, f"{near:.3f}", f"{tile:.3f}", f"{sink:.4f}", f"{count:.0f}", f"{spread:.2f}", f"{above:.2f}", f"{rise:.1f}",
                          f"{surprised:.3f}"])


if __name__ == "__main__":
    main()
