"""A poster of the last kernel: who is in a block, what its shared memory holds, who tells whom, and one tile's time. Sizes are those of
34_under's kernel.cuh; times are what the units need at least."""
import re
from pathlib import Path

from tools.site.sketch import FULL, Sketch

KERNEL = (Path(__file__).resolve().parents[2] / "hopper" / "34_under" / "kernel.cuh").read_text(encoding="utf-8")
STAGES = 2
PRODUCER, CONSUMER = map(int, re.search(r"PRODUCER_REGISTERS = (\d+), CONSUMER_REGISTERS = (\d+)", KERNEL).groups())
ROWS, KEYS, D = 64, 128, 128  # of a warpgroup's product
PRODUCT = 2 * ROWS * KEYS * D // 4096  # clocks: 4096 operations per clock and SM
SOFTMAX = ROWS * KEYS // 16  # clocks: 16 exponentials per clock and SM
assert f"BARRIERS {4 * STAGES + 4}" == "BARRIERS 12" and "(4 * STAGES + 4) * 8" in KERNEL

DRAWING = Sketch(
    "The last kernel on one page: three warpgroups, 192 KiB of shared memory, twelve barriers, and the time of a tile",
    f"A block is one producer warpgroup, whose first thread requests all copies with {PRODUCER} registers, and two consumer warpgroups, A and B, with {CONSUMER} registers a thread, "
    "each with 64 queries. Shared memory holds two stages each of Q, K and V, 32 KiB each. Every stage has two barriers: full, which the copy engine completes, and empty, at which the consumers arrive. "
    f"Of a tile QK and PV take {PRODUCT} clocks each on the tensor cores, its softmax {SOFTMAX} on the exponential units. A consumer's softmax runs under its own PV and under the other consumer's products, so that the tensor cores never stop.")
half = (FULL - 4) / 2
DRAWING.text(2, 11, "Three warpgroups", "name")
for i, (who, kind) in enumerate(((f"producer: 1 thread\n{PRODUCER} registers", "copy"), (f"A: 64 queries\n{CONSUMER} registers", "work"),
                                 (f"B: 64 queries\n{CONSUMER} registers", "work"))):
    DRAWING.box(2 + i * 122, 18, 119 if i else 119, 32, kind, who)

DRAWING.text(2, 76, "192 KiB of shared memory, in stages of 32 KiB", "name")
for i, name in enumerate(("Q and O", "K", "V")):
    for stage in range(STAGES):
        DRAWING.box(2 + i * 122 + stage * 60, 83, 59, 30, "data", f"{name}\n{'this' if stage == 0 else 'next'}" if name == "Q and O" else f"{name}\nstage {stage}")

DRAWING.text(2, 139, "Twelve barriers: two for each stage", "name")
for y, (name, says) in enumerate((("full", "landed, consumers may read it"), ("empty", "read, the producer may refill it"))):
    for i in range(6):
        DRAWING.box(2 + i * 16, 146 + 20 * y, 13, 13, "copy" if name == "full" else "work")
    DRAWING.text(102, 157 + 20 * y, f"{name}: {says}", "label")

DRAWING.text(2, 209, f"One tile, in clocks: QK {PRODUCT}, softmax {SOFTMAX}, PV {PRODUCT}", "name")
T, S = PRODUCT, SOFTMAX
end = DRAWING.timeline(218, [
    ("tensor", [(0, T, "work", "QK A", True), (T, 2 * T, "work", "PV A", True), (2 * T, 3 * T, "work", "QK B"), (3 * T, 4 * T, "work", "PV B")]),
    ("exp", [(T, T + S, "data", "A", True), (T + S, 3 * T, "waste", ""), (3 * T, 3 * T + S, "data", "B")]),
    ("copies", [(0, 2 * T, "copy", "next K"), (2 * T, 4 * T, "copy", "next V")]),
], x=52)
DRAWING.text(2, end + 10, "The softmax of a tile runs under PV of the tile before.", "label")
DRAWING.text(2, end + 24, "What the units need at least; a softmax also issues", "label")
DRAWING.text(2, end + 37, "multiply-adds, sums and packing, under B's products.", "label")
DRAWING.text(2, end + 50, "Outlined: A's. Hatched: the exponential units rest.", "label")
