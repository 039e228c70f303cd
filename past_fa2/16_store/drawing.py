from tools.site.drawings import layouts
from tools.site.sketch import Sketch

SECTOR = 32  # bytes in which global memory is written


def touched(places: list[tuple[int, int, int]]) -> dict[tuple[int, int], int]:
    """(row, sector) -> how many bytes of it one store of a warp writes; places are row, first byte, bytes."""
    sectors: dict[tuple[int, int], int] = {}
    for row, byte, count in places:
        sectors[row, byte // SECTOR] = sectors.get((row, byte // SECTOR), 0) + count
    return sectors


fragment = touched([(lane_places[0][0], 2 * lane_places[0][1], 4) for lane_places in layouts()["C"]["lanes"]])
rows = touched([(lane // 16, lane % 16 * 16, 16) for lane in range(32)])
assert set(fragment.values()) == {SECTOR // 2} and set(rows.values()) == {SECTOR}

DRAWING = Sketch("What one store of a warp writes of O: sectors of 32 bytes, half filled or full",
                 f"Left, 15: 32 lanes write 4 bytes each, to {len(fragment)} rows, 16 bytes in each: {len(fragment)} sectors, half filled. Right, 16: 32 lanes write 16 bytes each, two whole rows of 256 bytes: "
                 f"{len(rows)} sectors, all full.")
for x, name, sectors, wide in ((22, "15: 4 B per lane", fragment, 146), (214, "16: 16 B per lane", rows, 150)):
    DRAWING.text(x, 12, name, "name")
    unit = wide / 8
    for row in range(8):
        DRAWING.text(x - 4, 34 + 18 * row, str(row), "label", "end")
        for sector in range(8):
            filled = sectors.get((row, sector), 0)
            DRAWING.box(x + sector * unit, 22 + 18 * row, unit, 15, "work" if filled == SECTOR else "waste" if filled else "empty")
            if 0 < filled < SECTOR:
                DRAWING.box(x + sector * unit, 22 + 18 * row, unit * filled / SECTOR, 15, "work")
    DRAWING.text(x, 182, f"{len(sectors)} sectors, {'half filled' if name[:2] == '15' else 'full'}", "label")
DRAWING.text(22, 198, "columns: the 8 sectors of a row of O", "label")
