"""Drawings of sizes, tiles and order: from the tile of a rung, from the layout functions, from the recorded traces
(traces.py), and from docs/results."""
from __future__ import annotations

import json

from tools import results, rungs
from tools.paths import DOCS
from tools.site import prose
from tools.site.drawings import grid, layouts, REGISTERS
from tools.site.sketch import FULL, Sketch
from tools.site.traces import file_of

# ---- how large, how cut ----------------------------------------------------------------------------------------------

def sizes(n: int = 2048, d: int = 128) -> Sketch:
    """Q and K^T at the edges of the score matrix that they give, to scale."""
    mib = lambda elements, size: f"{elements * size / 2**20:g} MiB"
    sketch = Sketch(f"To scale, one head at n = {n}, d = {d}: what comes in at the edges, and the matrix that nobody asked for",
                    f"Q and K are {mib(n * d, 2)} each, the score matrix is {n // d} times as wide as Q and takes {mib(n * n, 4)}. "
                    f"At twice the n, Q and K double and the scores take four times as much.")
    side, x, y = 256.0, 60.0, 40.0
    thin = side * d / n
    sketch.box(x - 8 - thin, y, thin, side, "work")
    sketch.box(x, y - 8 - thin, side, thin, "work")
    sketch.box(x, y, side, side, "data", f"the scores: {n} x {n},\n{mib(n * n, 4)} in f32")
    sketch.text(2, y + side / 2, "Q")
    sketch.text(x, 12, f"K transposed: {d} x {n}, {mib(n * d, 2)} in f16")
    return sketch


def tiling(stage: str) -> Sketch:
    """Grid, block, warp and mma tile of QK, each the picked part of the one before."""
    tile = rungs.by_name()[stage].default
    br, bc, warps, groups, d = tile.br, tile.bc, tile.warps, tile.m_tiles, tile.max_d
    columns, depth = bc // 8, d // 16
    if not bc or (warps * groups * 16, columns * 8, depth * 16) != (br, bc, d):
        raise ValueError(f"{stage}: mma tiles of 16 x 8 do not cover its tile of {br} x {bc}")
    row_groups = f"{groups} row group{'s' * (groups > 1)}"
    sketch = Sketch(f"{stage}: the scores, cut four times; each picked part is drawn larger in the next panel",
                    f"A block owns {br} rows of the scores and walks over them in tiles of {br} x {bc}. Each of its {warps} warps owns {16 * groups} "
                    f"rows of a tile, as {row_groups} of 16, each cut into {columns} mma tiles of 16 x 8. One mma tile takes "
                    f"{depth} mma instructions, 16 of the {d} columns of Q and K at a time.")
    n, panel, left, right, top, low = 512, 128.0, 4.0, 196.0, 34.0, 222.0

    def cells(x: float, y: float, wide: float, tall: float, rows: int, across: int, picked, beside=lambda row: False) -> None:
        sketch.grid(x, y, wide, tall, rows, across, lambda r, c: "work" if picked(r, c) else "copy" if beside(r) else "empty", picked=picked)

    def panel_of(x: float, y: float, what: str, parts: str) -> None:
        sketch.text(x, y, what)
        sketch.text(x, y + 14, parts, "label")

    panel_of(left, 12, f"grid: S, {n} x {n}", f"{n // br} blocks per head")
    cells(left, top, panel, panel, n // br, n // bc, lambda r, c: (r, c) == (1, 0), lambda r: r == 1)
    panel_of(right, 12, f"block: {br} x {bc}", f"{warps} warps; {n // bc} such tiles")
    scale = panel / max(br, bc)
    cells(right, top, bc * scale, br * scale, warps, 1, lambda r, c: r == 0)
    panel_of(left, low - 22, f"warp: {16 * groups} x {bc}", f"{row_groups} x {columns} mma tiles")
    scale = 160.0 / max(bc, 16 * groups)
    cells(left, low, bc * scale, 16 * groups * scale, groups, columns, lambda r, c: (r, c) == (0, 0))
    panel_of(right, low - 22, "mma tile: 16 x 8", f"{depth} steps of 16 along d")
    for x, wide, kind, words in ((0, 32, "work", "S"), (50, 64, "data", "A 16x16"), (132, 32, "data", "B")):
        sketch.box(right + x, low, wide, 64, kind, words, words == "S")
    sketch.text(right + 37, low + 36, "=")
    sketch.text(right + 119, low + 36, "x")
    return sketch


def p_in_registers() -> Sketch:
    """Two C fragments side by side against one A fragment. Stops the build if they were not the same elements."""
    owner_a = {tuple(place): (lane, i) for lane, places in enumerate(layouts()["A"]["lanes"]) for i, place in enumerate(places)}
    cells = []
    for lane, places in enumerate(layouts()["C"]["lanes"]):
        for tile in range(2):
            for i, (row, column) in enumerate(places):
                if owner_a[row, column + 8 * tile] != (lane, i + 4 * tile):
                    raise ValueError("two C fragments are no longer one A fragment")
                if i % 2 == 0:
                    register = i // 2 + 2 * tile
                    cells.append((row, column + 8 * tile, 1, 2, f"{lane}:{i}{i + 1}", REGISTERS[register], lane == 5))
    return grid("Two results of QK, side by side: lane : its two C registers. Shades are the registers of A that they become",
                "In both tiles C registers 0 and 1 of a lane lie where A wants its registers 0 (left tile) and 2 (right tile), C registers 2 and 3 "
                "where A wants registers 1 and 3; in every lane, for all 256 elements.",
                [str(r) for r in range(16)], [str(c) for c in range(16)], cells)


# ---- in which order --------------------------------------------------------------------------------------------------

KINDS = {"ld.global": "copy", "st.shared": "copy", "cp.async.16": "request", "cp.async.wait": "wait", "__syncthreads": "barrier",
         "ldmatrix": "multiply", "mma": "multiply", "shfl": "softmax", "st.global": "store"}


def order(stage: str) -> list[list]:
    """What warp 0 does in the recorded trace, equal work in one step: [kind, buffer, instructions]."""
    trace = json.loads(file_of(rungs.by_name()[stage]).read_text(encoding="utf-8"))
    found: list[list] = []
    for number, warp, *_ in trace["events"]:
        site = trace["sites"][number]
        kind = next((kind for start, kind in KINDS.items() if site["instruction"].startswith(start)), None)
        if warp != 0 or kind is None:
            continue
        buffer = site.get("shared", site.get("global", {})).get("buffer", "")
        if kind == "multiply" and buffer not in ("K", "V"):  # Q is loaded, or a product is taken, for the step at hand
            buffer = found[-1][1] if found[-1][0] == "multiply" else "K"
        if kind == "wait" or not found or found[-1][:2] != [kind, buffer]:
            found.append([kind, buffer, 0])
        found[-1][2] += 1
    return found


# ---- what it gained --------------------------------------------------------------------------------------------------

def waterfall() -> Sketch:
    """What each rung added, from the rate of the rung that it starts from to its own. Slow rungs have a panel with a
    scale of its own."""
    timed, peers, ceilings = results.select(csv := DOCS / "results" / "h200.csv", results.read(csv), results.Selection())
    rates = {row.stage: row.tflops for row in timed}
    marks = [(row.stage, row.tflops) for row in peers if row.stage == "fa2"]
    slow = [row for row in timed if row.tflops < max(rates.values()) / 8]
    said = lambda rate: f"{rate:.{1 if rate < 100 else 0}f}"
    ceiling = next(row for row in ceilings if row.stage == "mma_sync")
    sketch = Sketch(f"TFLOPS on an {timed[0].gpu} at {results.Selection()}: each bar goes from the rung that it starts from to the rung itself. Hatched: lost, or no difference in "
                    f"paired rounds. Dashed: FlashAttention-2 in PyTorch. A loop of nothing but mma.sync reaches {ceiling.tflops:.0f}",
                    " ".join(f"{name}: {rate:.1f}." for name, rate in rates.items()))
    name_width, number_width, line, y = 92.0, 84.0, 17.0, 4.0
    for group in filter(None, (slow, [row for row in timed if row not in slow])):
        scale = (FULL - name_width - number_width) / max([row.tflops for row in group] + [rate for _, rate in marks if group is not slow])
        top = y = y + 14
        for row in group:
            before = rates.get(rungs.by_name()[row.stage].previous, 0.0)
            low, high = sorted((before, row.tflops))
            lost = row.verdict == "same" or row.tflops < before
            sketch.text(name_width - 6, y + 11, row.stage, "label", "end")
            sketch.box(name_width + low * scale, y, max((high - low) * scale, 3.0), line - 4, "waste" if lost else "work")
            gain = "same" if row.verdict == "same" else f"{row.tflops - before:+.{1 if row.tflops < 100 else 0}f}" if before else ""
            sketch.text(FULL - number_width + 40, y + 11, said(row.tflops), "", "end")
            sketch.text(FULL - number_width + 44, y + 11, gain, "label")
            y += line
        for name, rate in marks if group is not slow else ():
            x = name_width + rate * scale
            sketch.line(x, top - 4, x, y, "dashed")
            sketch.text(x + 4, top - 6, f"{name} {rate:.0f}", "label", "end" if x > FULL - number_width - 30 else "start")
    return sketch


# ---- the tree --------------------------------------------------------------------------------------------------------

def tree() -> Sketch:
    """All rungs: the line as a trunk, and beside each of its rungs what hangs under it, by who starts from whom."""
    line, known = rungs.by_line(), rungs.by_name()
    words = [f"{rung.name}{f', from {rung.previous}' if rung.previous else ''}{': ' if beside else ''}"
             + ", ".join(f"{other.name} ({other.role}, from {other.previous})" for other in beside) + "." for rung, beside in line]
    sketch = Sketch("The whole ladder. Down the left its line, and beside each of its rungs those that come from it. The next of the line comes by way of those that a full line joins", " ".join(words))
    wide, tall, row, chip, step, left = 92.0, 14.0, 18.0, 20.0, 24.0, 104.0
    above = lambda rung: known[known[rung.previous].line] if rung.previous else None
    ways: set[str] = set()  # rungs between two of the line
    for rung, _ in line:
        while rung.previous and known[rung.previous].role != "line":
            ways.add(rung.previous)
            rung = known[rung.previous]

    def mark(x: float, y: float, wide: float, role: str, said: str) -> None:
        if role == "port":
            sketch.box(x - 2, y - 2, wide + 4, tall + 4, "empty")
        sketch.box(x, y, wide, tall, {"branch": "data", "lost": "waste"}.get(role, "empty"), said)

    y, last = 4.0, None
    for role, x in (("line", 0.0), ("branch", 60.0), ("variant", 132.0), ("port", 210.0), ("lost", 272.0)):
        if role == "line":
            sketch.box(x, y + 4, chip, 6, "work")
        else:
            mark(x, y, chip, role, "")
        sketch.text(x + chip + 4, y + 11, role, "label")
    y += 1.6 * row
    for rung, beside in line:
        if last and above(rung) != last:
            sketch.text(0, y + 10, f"{rung.part_title.partition(':')[0]}, from {above(rung).name}", "label")
            y += row
        elif last:
            sketch.box(wide / 2 - 3, bottom, 6, y - bottom, "work")
        top, used = y, y - row
        sketch.box(0, y, wide, tall, "work", rung.name)
        places: dict[str, tuple[float, float]] = {rung.name: (wide, y)}
        for other in beside:
            from_x, from_y = places[other.previous]
            x = left if other.previous == rung.name else from_x + step - chip
            is_next = not any(at_x > x and at_y == from_y for at_x, at_y in places.values()) and (other.previous != rung.name or used < top)
            at = from_y if is_next else used + row
            kind = "" if other.name in ways else "dashed"
            if is_next:
                sketch.line(from_x, at + 7, x, at + 7, kind)
            else:
                bend = x - (step - chip) / 2
                sketch.line(bend, from_y + 7, bend, at + 7, kind)
                sketch.line(bend, at + 7, x, at + 7, kind)
            mark(x, at, chip, other.role, other.number)
            places[other.name], used = (x + chip, at), max(used, at)
        bottom, y, last = top + tall, max(top, used) + row, rung
    return sketch


# What a chapter's table has in figures, as pairs of bars: the metric, its name, and the end of its scale.
BEFORE_AND_AFTER = (("tensor_busy", "tensor cores active, %", 100.0), ("shared_busy", "shared-memory pipe busy, %", 100.0),
                    ("waits_global", "waiting for global memory, clocks per instruction", None), ("waits_shared", "waiting for shared memory, clocks per instruction", None))


def counters(stage: str) -> Sketch | None:
    """The hardware's counters of a rung and of the one that it starts from, where they differ by a twentieth; None
    where there are none."""
    before = rungs.by_name()[stage].previous or None
    if before is None:
        return None
    try:
        values = [(words, end, prose.ncu(before, metric), prose.ncu(stage, metric)) for metric, words, end in BEFORE_AND_AFTER]
    except results.ResultsError:
        return None
    values = [value for value in values if abs(value[3] - value[2]) > max(value[2], value[3]) / 20]
    if not values:
        return None
    sketch = Sketch(f"Counted by the hardware: {before} (upper bar) and {stage} (lower bar), at batch 2, heads 16, N = 4096",
                    " ".join(f"{words}: {old:.3g} in {before}, {new:.3g} in {stage}." for words, _, old, new in values))
    for y, (words, end, old, new) in zip(range(0, 50 * len(values), 50), values, strict=True):
        sketch.text(2, y + 13, words)
        scale = (FULL - 60) / (end or max(old, new, 1.0))
        for top, value, kind in ((y + 18, old, "empty"), (y + 30, new, "work")):
            sketch.box(2, top, value * scale, 12, kind)
            sketch.text(6 + value * scale, top + 10, f"{value:.3g}", "label")
    return sketch


SCHEMES = {
    "sizes": sizes,
    "p-in-registers": p_in_registers,
    "tree": tree,
    "waterfall": waterfall,
}
OF_A_RUNG = {"counters": counters, "tiling": tiling}


def scheme(name: str) -> Sketch | None:
    """A drawing by name: waterfall, or counters-03_kvpipe and tiling-03_kvpipe of any rung. Raises KeyError where there
    is none."""
    kind, _, rung = name.partition("-")
    if kind in OF_A_RUNG and rung in rungs.by_name():
        return OF_A_RUNG[kind](rung)
    return SCHEMES[name]()
