"""Who holds and what lies where: drawn from what layouts.cpp prints and from what an H200 answered to ldmatrix
(harness/tests/fixtures/conformance)."""
from __future__ import annotations

import functools
import json
import os
import subprocess
import tempfile
from pathlib import Path

from tools.paths import ROOT, SITE
from tools.site.sketch import Sketch

WIDTH, MARGIN, LINE = 320, 46, 20
REGISTERS = ("empty", "data", "copy", "work")  # the shades of four


@functools.cache
def layouts() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "layouts"
        sources = [SITE / "layouts.cpp", ROOT / "common" / "emulator" / "bank_model.cpp"]
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", f"-I{ROOT}", *sources, "-o", program], check=True)
        return json.loads(subprocess.run([program], check=True, capture_output=True, text=True).stdout)


def grid(title: str, words: str, rows: list[str], columns: list[str], cells: list[tuple]) -> Sketch:
    """`cells` are (row, column, rows, columns, text, kind, picked) in units of the grid."""
    sketch, unit = Sketch(title, words), WIDTH / len(columns)
    for column, name in enumerate(columns):
        sketch.text(MARGIN + (column + .5) * unit, 14, name, "label", "middle")
    for row, name in enumerate(rows):
        sketch.text(MARGIN - 6, LINE * (row + 1) + 14, name, "label", "end")
    for row, column, tall, wide, text, kind, picked in sorted(cells, key=lambda cell: cell[-1]):  # outlines last
        sketch.box(MARGIN + column * unit, LINE * (row + 1), wide * unit, tall * LINE, kind, text, picked)
    return sketch


def merged(owner: dict[tuple[int, int], tuple[int, int]], label) -> list[tuple]:
    """Cells of a map element -> (lane, register); two elements in one register become one cell."""
    cells = []
    for (row, column), (lane, register) in sorted(owner.items()):
        if owner.get((row, column - 1)) == (lane, register) or owner.get((row - 1, column)) == (lane, register):
            continue
        wide = 1 + (owner.get((row, column + 1)) == (lane, register))
        tall = 1 + (owner.get((row + 1, column)) == (lane, register))
        cells.append((row, column, tall, wide, label(lane, register), REGISTERS[register], lane == 5))
    return cells


def held_by(owner: dict, lane: int) -> str:
    elements = sorted((register, place) for place, (who, register) in owner.items() if who == lane)
    return f"Lane {lane} holds " + ", ".join(f"row {r} column {c} in register {register}" for register, (r, c) in elements) + "."


def fragment(name: str) -> Sketch:
    layout = layouts()[name]
    per_register = 1 if name == "C" else 2  # f32, or two f16
    owner = {tuple(place): (lane, i // per_register) for lane, places in enumerate(layout["lanes"]) for i, place in enumerate(places)}
    if len(owner) != layout["rows"] * layout["cols"]:
        raise ValueError(f"fragment {name} does not cover its matrix")
    return grid(f"Operand {name}: lane : register of every element; lane 5 is outlined", " ".join(held_by(owner, lane) for lane in (0, 5, 31)),
                [str(r) for r in range(layout["rows"])], [str(c) for c in range(layout["cols"])],
                merged(owner, lambda lane, register: f"{lane}:{register}"))


def dealt(name: str) -> dict[tuple[int, int], tuple[int, int]]:
    """Element -> (lane, 0) of one 8x8 matrix, as the hardware dealt it out: element (row, column) of matrix m was 0mrc,
    two to a word."""
    text = (ROOT / "harness" / "tests" / "fixtures" / "conformance" / f"{name}.txt").read_text(encoding="utf-8")
    words = [word for line in text.splitlines() if not line.startswith("#") for word in line.split()]
    owner = {}
    for lane in range(32):
        for half in (words[4 * lane][4:], words[4 * lane][:4]):
            owner[int(half[2]), int(half[3])] = (lane, 0)
    if len(owner) != 64:
        raise ValueError(f"{name}: matrix 0 is not all there")
    return owner


def ldmatrix(name: str) -> Sketch:
    owner = dealt(name)
    how = "transposed" if name.endswith("trans") else "plain"
    return grid(f"ldmatrix, {how}: the lane that receives each element of an 8x8 matrix; at the left, the lane that gives the row's address",
                "Matrix m goes to register m. " + " ".join(held_by(owner, lane) for lane in (0, 5, 31)).replace("register 0", "its register"),
                [f"8m+{r}" for r in range(8)], [str(c) for c in range(8)], merged(owner, lambda lane, _: str(lane)))


def banks(name: str) -> Sketch:
    layout = layouts()[name]
    cells = []
    for row, offsets in enumerate(layout["offsets"]):
        for chunk, offset in enumerate(offsets):
            cells.append((row, offset % 128 // 16, 1, 1, str(chunk), "copy" if chunk == 2 else "empty", chunk == 2))
    places = [offsets[2] % 128 // 16 * 4 for offsets in layout["offsets"]]
    count = layout["wavefronts"]
    return grid(f"{name.capitalize()}: which chunk lies in which banks. Reading chunk 2 of eight rows: {count} wavefront{'s' * (count > 1)}",
                "Chunk 2 of rows 0 to 7 begins in bank " + ", ".join(map(str, places)) + ".",
                [f"row {r}" for r in range(8)], [f"{4 * g}-{4 * g + 3}" for g in range(8)], cells)


DRAWINGS = {
    **{f"fragment-{name}": functools.partial(fragment, name) for name in "ABC"},
    "ldmatrix": functools.partial(ldmatrix, "ldmatrix_x4"),
    "ldmatrix-trans": functools.partial(ldmatrix, "ldmatrix_x4_trans"),
    "banks-plain": functools.partial(banks, "plain"),
    "banks-swizzled": functools.partial(banks, "swizzled"),
}
