"""What drawings of chapters and pages are made of: boxes, arrows, bars over time, words. A drawing is a Python file
that ends in

    DRAWING = Sketch("What it shows, in one line", "All that it shows, in words, for those who do not see it.")
    DRAWING.box(...)

and lies beside the page that shows it: RUNG/drawing.py (drawing_WHAT.py for another one), or
docs/drawings/NAME.py. draw.py writes NAME.svg next to it, which is committed. A page names it as an image,
`![...](drawing.svg)`: a code host shows that, and the site puts the drawing itself into the page.

Units are pixels on a phone: 368 wide, type of 11 and 10.2. Words that run out of their box, across the edge of another
or over each other, and a box out of the drawing, are errors. Shades say what a box is: `empty`, `data` at rest, a
`copy` under way, `work` being done, and `waste`, hatched, what is idle or useless."""
from __future__ import annotations

import html
import math
import re

FULL = 368.0
LETTER = {"": 6.63, "label": 6.15}  # widths of the two sizes of type
KINDS = ("empty", "data", "copy", "work", "waste")


class Sketch:
    def __init__(self, title: str, words: str) -> None:
        self.title, self.words = title, words
        self.parts: list[str] = []
        self.written: list[tuple[float, float, float, str]] = []  # free words: from, to, on which line
        self.boxes: list[tuple[float, float, float, float]] = []
        self.height = 0.0

    def _across(self, text: tuple[float, float, float, str], box: tuple[float, float, float, float]) -> None:
        """Words stand in a box or beside it, and not across its edge."""
        left, right, y, words = text
        x, top, to_x, bottom = box
        meets = left < to_x - 1 and x + 1 < right and y - 7 < bottom - 1 and top + 1 < y + 1
        if meets and not (x <= left and right <= to_x + 1 and top <= y - 7 and y <= bottom):
            raise ValueError(f"{self.title}: '{words}' stands across the edge of a box at {x:.0f}, {top:.0f}")

    def _within(self, x: float, y: float, right: float, bottom: float, what: str) -> None:
        if x < -0.5 or y < -0.5 or right > FULL + 0.5:
            raise ValueError(f"{self.title}: {what} leaves the drawing: {x:.0f} to {right:.0f} of {FULL:.0f}, from {y:.0f} down")
        self.height = max(self.height, bottom)

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """`y` is the line that the letters stand on. Kinds: label, smaller and softer; name, bold."""
        wide = len(words) * LETTER["label" if "label" in kind else ""]
        left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        self._within(left, y - 9, left + wide, y + 4, f"'{words}'")
        for other_left, other_right, other_y, other in self.written:
            if abs(other_y - y) < 10 and left < other_right and other_left < left + wide:
                raise ValueError(f"{self.title}: '{words}' lies over '{other}'")
        self.written.append((left, left + wide, y, words))
        for box in self.boxes:
            self._across(self.written[-1], box)
        names = " ".join(filter(None, ("free", kind, "" if anchor == "middle" else anchor)))
        self.parts.append(f'<text{named(names)} x="{x:g}" y="{y:g}">{html.escape(words)}</text>')

    def box(self, x: float, y: float, wide: float, tall: float, kind: str = "data", words: str = "", picked: bool = False) -> None:
        """Words of several lines are set apart by a newline."""
        if kind not in KINDS:
            raise ValueError(f"{self.title}: no kind of box {kind}; there are {', '.join(KINDS)}")
        self._within(x, y, x + wide, y + tall + 1, f"a box '{words}'")
        self.boxes.append((x, y, x + wide, y + tall))
        for text in self.written:
            self._across(text, self.boxes[-1])
        names = f"{'empty' if kind == 'waste' else kind}{' picked' if picked else ''}"
        self.parts.append(f'<rect class="{names}" x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}"/>')
        if kind == "waste":
            self.parts.append(f'<path class="hatch" d="{hatching(x, y, wide, tall)}"/>')
        lines = words.split("\n") if words else []
        for i, line in enumerate(lines):
            if len(line) * LETTER[""] > wide + 1 or 12 * len(lines) > tall + 3:
                raise ValueError(f"{self.title}: '{line}' does not fit into its box of {wide:.0f} x {tall:.0f}")
            self.parts.append(f'<text{named("waste" if kind == "waste" else "")} x="{x + wide / 2:g}" y="{y + tall / 2 + 4 + 12 * (i - (len(lines) - 1) / 2):g}">{html.escape(line)}</text>')

    def grid(self, x: float, y: float, wide: float, tall: float, rows: int, columns: int, kind=lambda row, column: "data",
             words=lambda row, column: "", picked=lambda row, column: False) -> None:
        """Equal cells that fill wide x tall; the picked ones are drawn last, so that their outline is whole."""
        across, down = wide / columns, tall / rows
        places = [(row, column) for row in range(rows) for column in range(columns)]
        for row, column in sorted(places, key=lambda place: picked(*place)):
            self.box(x + column * across, y + row * down, across, down, kind(row, column), words(row, column), picked(row, column))

    def line(self, x: float, y: float, to_x: float, to_y: float, kind: str = "") -> None:
        self._within(min(x, to_x), min(y, to_y), max(x, to_x), max(y, to_y) + 1, "a line")
        self.parts.append(f'<line{named(kind)} x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}"/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float, kind: str = "") -> None:
        length = math.hypot(to_x - x, to_y - y)
        along, across = ((to_x - x) / length, (to_y - y) / length), (-(to_y - y) / length, (to_x - x) / length)
        corners = [(to_x - 7 * along[0] + side * 3.5 * across[0], to_y - 7 * along[1] + side * 3.5 * across[1]) for side in (1, -1)]
        self.line(x, y, to_x - 5 * along[0], to_y - 5 * along[1], kind)
        self.parts.append('<path class="head" d="M%g %gL%.4g %.4gL%.4g %.4gZ"/>' % (to_x, to_y, *corners[0], *corners[1]))

    def brace(self, x: float, to_x: float, y: float, words: str, kind: str = "label") -> None:
        """A bracket below what stands between x and to_x, and what it is."""
        self._within(x, y, to_x, y + 5, "a bracket")
        self.parts.append(f'<path d="M{x:g} {y:g}v4H{to_x:g}v-4"/>')
        self.text((x + to_x) / 2, y + 15, words, kind, "middle")

    def timeline(self, y: float, rows: list[tuple[str, list[tuple]]], x: float = 60.0, to_x: float = FULL - 2, until: float | None = None,
                 barriers: tuple[float, ...] = ()) -> float:
        """What each row does over time: (name, [(begin, end, kind, words)]), in any unit of time. Returns where the
        next thing may stand."""
        until = until or max(bar[1] for _, bars in rows for bar in bars)
        at = lambda time: x + (to_x - x) * time / until
        for i, (name, bars) in enumerate(rows):
            top = y + 20 * i
            self.text(x - 6, top + 12, name, "", "end")
            for begin, end, kind, words, *picked in bars:
                self.box(at(begin), top, at(end) - at(begin), 16, kind, words, *picked)
        for time in barriers:
            self.line(at(time), y - 3, at(time), y + 20 * len(rows) - 1)
        return y + 20 * len(rows) + 6

    def number_line(self, y: float, low: float, high: float, ticks, x: float = 20.0, to_x: float = FULL - 20):
        """An axis with the words of its ticks below; returns where a value stands on it."""
        at = lambda value: x + (to_x - x) * (value - low) / (high - low)
        self.arrow(x, y, to_x + 10, y)
        for value, words in ticks:
            self.line(at(value), y - 4, at(value), y + 4)
            self.text(at(value), y + 17, words, "label", "middle")
        return at

    def svg(self, style: str) -> str:
        """The whole file. Its ground is its own: a page may be dark where the reader's system is not."""
        tall = math.ceil(self.height + 2)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" class="sketch" viewBox="0 0 {FULL:g} {tall}" width="{1.5 * FULL:g}" height="{1.5 * tall:g}" role="img"><title>{html.escape(self.title)}</title>'
                f'<desc>{html.escape(self.words)}</desc>\n<style>\n{style}</style>\n<rect class="ground" x="-8" y="-8" width="{FULL + 16:g}" height="{tall + 16}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def bare(svg: str) -> str:
    """For the page itself, whose style it follows, and as wide as there is room for."""
    svg = re.sub(r'<style>.*?</style>\n<rect class="ground"[^>]*/>\n', "", svg, flags=re.S)
    return re.sub(r'(<svg[^>]*?) width="[^"]*" height="[^"]*"', r"\1", svg, count=1)


def inline(sketch: Sketch) -> str:
    """A drawing that is made while the site is built."""
    return f'<figure class="drawing">{bare(sketch.svg(""))}<figcaption>{html.escape(sketch.title)}</figcaption></figure>'


def named(kinds: str) -> str:
    return f' class="{kinds}"' if kinds else ""


def hatching(x: float, y: float, wide: float, tall: float, step: float = 7.0) -> str:
    """Diagonal lines that end at the edges of a box: no pattern, whose name would have to be unique on a page."""
    lines = []
    for i in range(1, int((wide + tall) / step) + 1):
        c = i * step  # points of the box with (px - x) + (py - y) == c
        begin, end = (min(c, wide), c - min(c, wide)), (c - min(c, tall), min(c, tall))
        lines.append(f"M{x + begin[0]:g} {y + begin[1]:g}L{x + end[0]:g} {y + end[1]:g}")
    return "".join(lines)
