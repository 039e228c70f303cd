"""From the recorded traces: in which order a warp copies, waits and multiplies."""
from tools.site.schemes import order
from tools.site.sketch import FULL, Sketch

STAGES = ("02_swizzle", "03_kvpipe")
WIDE = {"copy": 30.0, "request": 8.0, "wait": 5.0, "barrier": 5.0, "multiply": 38.0, "softmax": 24.0, "store": 12.0}
LEFT = 36.0


def bars(stage: str) -> tuple[dict[str, list[tuple]], list[float], float, list[str]]:
    """What stands in the rows K, V and mma, where the barriers are, how long it all is, and the same in words."""
    rows: dict[str, list[tuple]] = {"K": [], "V": [], "mma": []}
    barriers, said, flying, at = [], [], {}, 0.0
    numbers = {"K": 0, "V": 0, "QK": 0, "PV": 0}

    def next_name(kind: str) -> str:
        numbers[kind] += 1
        return f"{kind}{numbers[kind] - 1}"

    for kind, buffer, _ in order(stage):
        end = at + WIDE[kind]
        if kind in ("copy", "request") and buffer in rows:
            name = next_name(buffer)
            said.append(f"{'copies' if kind == 'copy' else 'requests'} {name}")
            if kind == "copy":
                rows[buffer].append((at, end, "copy", name))
                rows["mma"].append((at, end, "waste", ""))
            else:
                flying[buffer] = (at, name)
        elif kind == "copy":
            said.append("copies Q")
        elif kind == "wait":
            rows_of = {buffer: (begin, end, "copy", name) for buffer, (begin, name) in flying.items()}
            for buffer, bar in rows_of.items():
                rows[buffer].append(bar)
            said.append("waits for " + " and ".join(name for _, name in flying.values()))
            flying = {}
        elif kind == "barrier":
            barriers.append((at + end) / 2)
            said.append("barrier")
        elif kind == "multiply":
            name = next_name("QK" if buffer == "K" else "PV")
            rows["mma"].append((at, end, "work", name))
            said.append(name)
        elif kind == "softmax":
            rows["mma"].append((at, end, "empty", "s"))
        at = end
    return rows, barriers, at, said


drawn = {stage: bars(stage) for stage in STAGES}
DRAWING = Sketch("One warp's work in its order, two tiles of keys: copies then products, and copies under products",
                 " ".join(f"{stage}: {', '.join(drawn[stage][3])}." for stage in STAGES) + " The order is that of the recorded traces, the widths are not times.")
y = 0.0
for stage in STAGES:
    rows, barriers, until, _ = drawn[stage]
    DRAWING.text(2, y + 12, stage, "name")
    y = DRAWING.timeline(y + 20, list(rows.items()), LEFT, FULL - 2, until, tuple(barriers)) + 6
DRAWING.text(2, y + 10, "s: softmax.  Upright: barriers.  Hatched: no products.", "label")
DRAWING.text(2, y + 24, "The order is the trace's, widths are not times.", "label")
