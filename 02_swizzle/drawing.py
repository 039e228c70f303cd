from tools.site.drawings import layouts
from tools.site.sketch import Sketch

CHUNK = 2  # the one that ldmatrix reads of eight rows

DRAWING = Sketch(f"Where chunks 0 to 7 of eight rows lie; outlined: chunk {CHUNK}, which one ldmatrix reads of all eight rows",
                 " ".join(f"{name.capitalize()}: chunk {CHUNK} of rows 0 to 7 begins in bank " + ", ".join(str(offsets[CHUNK] % 128 // 4) for offsets in layouts()[name]["offsets"])
                          + f", so reading it takes {layouts()[name]['wavefronts']} wavefronts." for name in ("plain", "swizzled")))
for name, code, x in (("plain", "01: chunk", 26), ("swizzled", "02: chunk ^ row % 8", 214)):
    places = {(row, offset % 128 // 16): chunk for row, offsets in enumerate(layouts()[name]["offsets"]) for chunk, offset in enumerate(offsets)}
    DRAWING.text(x, 12, code, "name")
    DRAWING.grid(x, 22, 152, 160, 8, 8, lambda row, place: "work" if places[row, place] == CHUNK else "empty",
                 lambda row, place: str(places[row, place]), lambda row, place: places[row, place] == CHUNK)
    DRAWING.text(x, 196, "banks 0-3", "label")
    DRAWING.text(x + 152, 196, "28-31", "label", "end")
    DRAWING.text(x, 212, f"{layouts()[name]['wavefronts']} wavefronts" if name == "plain" else "1 wavefront")
for row in range(8):
    DRAWING.text(22, 36 + 20 * row, str(row), "label", "end")

