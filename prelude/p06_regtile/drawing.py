from tools.site.sketch import Sketch

DRAWING = Sketch("A value of K is read and converted once: one product before, four now",
                 "Left, p05: each of four groups reads the same chunk of K, converts it and multiplies it with its one query: four reads, four conversions, four products. "
                 "Right, p06: a group reads the chunk and converts it once and multiplies it with its four queries: one read, one conversion, four products.")


def path(x: float, name: str, owners: list[str], shared: bool) -> None:
    DRAWING.text(x, 12, name, "name")
    for i, owner in enumerate(owners):
        y = 24 + 34 * i
        if i == 0 or not shared:
            DRAWING.box(x, y, 30, 24, "data", "K")
            DRAWING.arrow(x + 31, y + 12, x + 43, y + 12)
            DRAWING.box(x + 44, y, 42, 24, "waste" if i else "copy", "f32", shared)
        begin = 36 if shared else y + 12
        DRAWING.arrow(x + 87, begin, x + 103, y + 12)
        DRAWING.box(x + 104, y, 66, 24, "work", f"x {owner}")


path(2, "p05: a row per lane", [f"q{i}" for i in range(4)], False)
path(194, "p06: four rows per lane", [f"q{i}" for i in range(4)], True)
DRAWING.text(2, 172, "4 reads, 4 conversions", "")
DRAWING.text(2, 186, "hatched: the same again", "label")
DRAWING.text(194, 172, "1 read, 1 conversion", "")
