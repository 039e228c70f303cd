"""How near and how wide each memory is, to scale. L2's range was measured (docs/gpu.md says how), the rest is arithmetic and the data sheet's."""
import prose
from sketch import FULL, Sketch

SMS, CLOCK = 132, 1.98e9
SHARED = SMS * 128 * CLOCK / 1e12  # TB/s: a wavefront of 32 banks x 4 B per clock and SM
L2 = (6.4, 8.4)
HBM = 4.8
CEILING = prose.h200("mma_sync", regime="burst").tflops
ROWS = (("registers", "256 KiB per SM, private to a thread", 0.0, 0.0, "an operand of the instruction itself"),
        ("shared memory", "up to 227 KiB per block, seen by the block", SHARED, SHARED, f"{SHARED:.0f} TB/s"),
        ("L2 cache", "tens of MiB, seen by all SMs", *L2, f"{L2[0]:g} to {L2[1]:g} TB/s"),
        ("global memory", "141 GB, seen by all", HBM, HBM, f"{HBM:g} TB/s"))

DRAWING = Sketch("Four memories of an H200: near and small above, far and large below; the bars are bytes per second, to scale",
                 " ".join(f"{name}: {size}; {rate}." for name, size, _, _, rate in ROWS)
                 + f" To keep mma.sync busy at {CEILING:.0f} TFLOPS a byte of shared memory has to serve {CEILING / SHARED:.0f} operations, one of L2 "
                 f"{CEILING / L2[1]:.0f} to {CEILING / L2[0]:.0f}, one of global memory {CEILING / HBM:.0f}.")
scale = (FULL - 4) / SHARED
y = 0.0
for name, size, low, high, rate in ROWS:
    DRAWING.text(2, y + 12, name, "name")
    DRAWING.text(FULL - 2, y + 12, size, "label", "end")
    if not high:
        DRAWING.box(2, y + 18, FULL - 4, 18, "work", rate)
        y += 58
        continue
    DRAWING.box(2, y + 18, low * scale, 18, "data", rate if high == SHARED else "")
    if high > low:
        DRAWING.box(2 + low * scale, y + 18, (high - low) * scale, 18, "copy")
    if high < SHARED:
        DRAWING.text(10 + high * scale, y + 31, rate)
    need = f"{CEILING / high:.0f}" + (f" to {CEILING / low:.0f}" if high > low else "")
    DRAWING.text(2, y + 49, f"{need} operations per byte keep mma.sync busy", "label")
    y += 66
