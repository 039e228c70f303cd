"""A rung beside FlashAttention-3 and cuDNN on each input set, mask and length: from the groups of a bench (--rounds-csv) the table of
docs/results/CARD_grid.csv, one heat a row. Ratios are medians of those within each round, of rates and of rates per clock.

    ./ladder bench 38 --sweep --causal --heads 16 --rounds 9 --inputs normal,peaky --versus fa3 --csv x.csv --rounds-csv ROUNDS
    python3 -m tools.evidence.grid 38_seam ROUNDS... --csv docs/results/h200_grid.csv
Exit code: 0 done; 1 a file lacks what it should have; 2 usage.
"""
from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path

from tools import results

PEERS = {"fa3": "FlashAttention-3", "cudnn_bhnd": "cuDNN"}
SETS = ("normal", "sinks", "sinks14", "sinks35", "trained", "peaky", "large_logits")  # in this order


def heats(files: list[Path], rung: str) -> dict[tuple, dict[str, dict[str, tuple[float, float]]]]:
    """Milliseconds and MHz by round, by contestant, by mask, inputs and n; of two such heats the later one in the files."""
    found: dict[tuple, dict[tuple, dict[str, dict[str, tuple[float, float]]]]] = {}
    for file in files:
        for row in results.table(file.absolute()):
            shape = row["causal"] == "1", row["inputs"], int(row["n"]), int(row["batch"]) * int(row["heads"]), int(row["d"])
            heat = found.setdefault(shape, {}).setdefault((str(file), row["commit"], row["heat"]), {})
            heat.setdefault(row["contestant"], {})[row["round"]] = float(row["ms"]), float(row["clock_mhz"])
    complete = {shape: [heat for heat in of_shape.values() if heat.keys() >= {rung, *PEERS}] for shape, of_shape in found.items()}
    return {shape: of_shape[-1] for shape, of_shape in complete.items() if of_shape}


def rows(files: list[Path], rung: str) -> list[dict[str, str]]:
    table, number = [], rung.partition("_")[0]
    by_set = heats(files, rung)
    for shape in sorted(by_set, key=lambda shape: (shape[0], SETS.index(shape[1]), shape[2])):
        causal, inputs, n, units, d = shape
        heat = by_set[shape]
        flops = 4 * units * n * n * d / (2 if causal else 1)
        row = {"mask": "causal" if causal else "dense", "inputs": inputs.replace("_", " "), "n": str(n)}
        for name, column in {rung: rung, **PEERS}.items():
            row[column] = f"{flops / statistics.median(ms for ms, _ in heat[name].values()) / 1e9:.0f}"
        for what, clock in (("", lambda mhz: 1.0), (" per clock", lambda mhz: mhz)):
            for name, column in PEERS.items():
                pairs = [(heat[name][at], heat[rung][at]) for at in heat[rung].keys() & heat[name].keys()]
                row[f"{number} over {column}{what}"] = f"{statistics.median(a[0] * clock(a[1]) / (b[0] * clock(b[1])) for a, b in pairs):.3f}"
        table.append(row)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rung", help="by its whole name, 38_seam")
    parser.add_argument("rounds", type=Path, nargs="+", help="what --rounds-csv wrote")
    parser.add_argument("--csv", type=Path, required=True, help="where the table goes")
    options = parser.parse_args()
    try:
        table = rows(options.rounds, options.rung)
    except (OSError, KeyError, ValueError) as error:
        print(f"{error!r}: these are no rounds of a bench, or on other inputs than {', '.join(SETS)}", file=sys.stderr)
        return 1
    if not table:
        print(f"No heat has {options.rung}, {' and '.join(PEERS)}", file=sys.stderr)
        return 1
    results.write_table(options.csv, table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
