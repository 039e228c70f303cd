"""What a kernel's counts cost on an SM of the H200, for the board of open exercises: an estimate, made of counts and measured rates.

Each unit's work is divided by the most that it was seen to do in a clock (docs/results/h200.csv), and the times are added: as if
nothing ran beside anything else. So it rewards whoever asks less of a unit, and it knows nothing of latency, of work that
overlaps, of registers, of barriers. Nor does it see what the copy engine writes to shared memory and wgmma reads there.
"""
from __future__ import annotations

import functools
from dataclasses import dataclass

from tools import results

RESULTS = results.RESULTS / "h200.csv"
MMA_FLOP = 16 * 8 * 16 * 2
FMA_FLOP = 128 * 2  # of the CUDA cores, per SM and clock: CUDA Programming Guide
WARPS_SHUFFLED = 1  # 32 lanes per SM and clock: the same; a vote takes half of that
COUNTERS = ("mma", "wgmma", "ldmatrix", "smem_wavefronts", "shuffles", "votes", "barriers", "gmem_bytes_read", "gmem_bytes_written")


@functools.cache
def rate(ceiling: str) -> float:
    """Operations or bytes per SM and clock, the most that was measured."""
    return max(row.flop_per_clk_sm for row in results.rows(RESULTS) if row.stage == ceiling and row.flop_per_clk_sm)


@dataclass(frozen=True)
class Cost:
    flop: int
    clocks: dict[str, float]  # of each unit

    @property
    def total(self) -> float:
        return sum(self.clocks.values())

    @property
    def flop_per_clk(self) -> float:
        return self.flop / self.total

    def __str__(self) -> str:
        parts = ", ".join(f"{unit} {clocks / self.total:.0%}" for unit, clocks in self.clocks.items() if clocks)
        return f"about {self.flop_per_clk:.0f} FLOP/clk per SM if nothing overlaps: {parts}"


def cost_of(row: dict) -> Cost:
    """`row`: what check or explain write of one shape, without a mask, to --json."""
    counted, scores = row["counters"], row["batch"] * row["heads"] * row["n"] ** 2
    flop = 4 * scores * row["d"]
    if counted["wgmma"]:  # their sizes are not counted; there is no right answer with less than this
        products = flop / rate("wgmma")
    else:  # what no mma has done, multiply-adds must have
        by_mma = counted["mma"] * MMA_FLOP
        products = by_mma / rate("mma_sync") + max(0, flop - by_mma) / FMA_FLOP
    return Cost(flop, {
        "products": products,
        "exponentials": scores / rate("ex2"),
        "shared memory": float(counted["smem_wavefronts"]),
        "shuffles and votes": (counted["shuffles"] + counted["votes"] / 2) / WARPS_SHUFFLED,
        "bytes from L2": (counted["gmem_bytes_read"] + counted["gmem_bytes_written"]) / rate("l2_read")})
