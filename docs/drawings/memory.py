"""How near and how wide each memory is, to scale. Shared memory's rate is arithmetic, the others' and all latencies were measured."""
from tools.site import prose
from tools.site.sketch import FULL, Sketch

SMS, CLOCK = 132, 1.98e9
SHARED = SMS * 128 * CLOCK / 1e12  # TB/s: a wavefront of 32 banks x 4 B per clock and SM
L2 = prose.h200("l2_read").tflops  # 10^12 bytes per second
HBM = prose.h200("dram_read").tflops
CEILING = prose.h200("mma_sync", regime="burst").tflops
CLOCKS = {name: f"an answer after {prose.latency(what).clocks:.0f} clocks"
          for name, what in (("shared memory", "ld.shared"), ("L2 cache", "L2"), ("global memory", "global memory"))}
ROWS = (("registers", "256 KiB per SM, private to a thread", 0.0, "an operand of the instruction itself"),
        ("shared memory", "up to 227 KiB per block, seen by the block", SHARED, f"{SHARED:.0f} TB/s"),
        ("L2 cache", "tens of MiB, seen by all SMs", L2, f"{L2:.1f} TB/s"),
        ("global memory", "141 GB, seen by all", HBM, f"{HBM:.1f} TB/s"))

DRAWING = Sketch("Four memories of an H200: near and small above, far and large below; the bars are bytes per second, to scale",
                 " ".join(f"{name}: {size}; {rate}{', ' + CLOCKS[name] if name in CLOCKS else ''}." for name, size, _, rate in ROWS)
                 + f" To keep mma.sync busy at {CEILING:.0f} TFLOPS a byte of shared memory has to serve {CEILING / SHARED:.0f} operations, one of L2 "
                 f"{CEILING / L2:.0f}, one of global memory {CEILING / HBM:.0f}.")
scale = (FULL - 4) / SHARED
y = 0.0
for name, size, wide, rate in ROWS:
    DRAWING.text(2, y + 12, name, "name")
    DRAWING.text(FULL - 2, y + 12, size, "label", "end")
    if not wide:
        DRAWING.box(2, y + 18, FULL - 4, 18, "work", rate)
        y += 58
        continue
    DRAWING.box(2, y + 18, wide * scale, 18, "data", rate if wide == SHARED else "")
    if wide < SHARED:
        DRAWING.text(10 + wide * scale, y + 31, rate)
    DRAWING.text(2, y + 49, CLOCKS[name], "label")
    DRAWING.text(2, y + 63, f"{CEILING / wide:.0f} operations per byte keep mma.sync busy", "label")
    y += 80
