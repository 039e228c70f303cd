"""Kernels on a page: the whole file, what changed in it since the rung that it starts from, and its parts by their
marks."""
from __future__ import annotations

import functools

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import changes, results, rungs
from tools.kernel_parts import LAUNCH, PARTS, part_lines
from tools.site.blocks import region_lines


def rung_named(directive: str, name: str) -> rungs.Rung:
    try:
        return rungs.named(name)
    except rungs.RungsError as error:
        raise ExtensionError(f"{directive} {name}: {error}") from None


@functools.cache
def highlighted(rung: rungs.Rung) -> list[str]:
    """The lines of its kernel as HTML."""
    text = rung.kernel.read_text(encoding="utf-8")
    lines = highlight(text, CudaLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n").split("\n")
    if len(lines) != len(text.splitlines()):
        raise ExtensionError(f"{rung.kernel}: a token runs over the end of its line")
    return lines


def code(lines: list[str], numbers: range, kind: str = "", marked: set[int] = frozenset(), anchors: bool = False) -> str:
    spans = []
    for n in numbers:
        mark = " changed" if n in marked else ""
        anchor = f' id="L{n}"' if anchors else ""
        spans.append(f'<span class="line{mark}" data-n="{n}"{anchor}>{lines[n - 1]}\n</span>')
    return f'<pre class="highlight {kind}">{"".join(spans)}</pre>'


def side_by_side(before: rungs.Rung, rung: rungs.Rung, context: int = 3) -> str:
    """A grid of two columns, one row for each stretch of equal or changed lines; equal stretches fold in the middle."""
    old_lines, new_lines = highlighted(before), highlighted(rung)
    rows, at_old, at_new, count = [f"<div>{before.name}</div><div>{rung.name}</div>"], 1, 1, 0

    def equal(old: range, new: range, kind: str = "equal") -> None:
        if new:
            rows.append(code(old_lines, old, kind + " old") + code(new_lines, new, kind + " new"))

    for old, new in [*changes.hunks(before, rung), (range(len(old_lines) + 1, 0), range(len(new_lines) + 1, 0))]:
        length = new.start - at_new
        head = 0 if at_new == 1 else min(context, length)
        tail = 0 if new.start == len(new_lines) + 1 else min(context, length - head)
        equal(range(at_old, at_old + head), range(at_new, at_new + head))
        hidden = length - head - tail
        if hidden > 0:
            rows.append(f'<div class="fold">{hidden} equal lines</div>')
        equal(range(old.start - tail, old.start), range(new.start - tail, new.start))
        if old or new:
            rows.append(code(old_lines, old, "removed") + code(new_lines, new, "added"))
            count += max(len(old), len(new))
        at_old, at_new = old.stop, new.stop
    return (f'<div class="side-by-side" data-changed="{count}" role="group" aria-label="{count} changed lines between {before.name} '
            f'and {rung.name}">{"".join(rows)}</div>')


class RungDiff(SphinxDirective):
    """```{rung-diff} 03_kvpipe```: what changed in kernel.cuh since the rung that it starts from."""
    required_arguments = 1

    def run(self):
        rung = rung_named("{rung-diff}", self.arguments[0])
        return [nodes.raw("", side_by_side(rungs.by_name()[rung.previous], rung), format="html")]


def parts(rung: rungs.Rung) -> str:
    """Links to the five parts, and to the launch. A kernel marks all of them, or, like the three of 00_naive, none."""
    text = rung.kernel.read_text(encoding="utf-8").splitlines()
    found = {name: part_lines(text, name) for name in PARTS}
    missing = [name for name in PARTS if not found[name]]
    if len(missing) == len(PARTS):
        return ""
    if missing:
        raise ExtensionError(f"{rung.directory}/kernel.cuh has no mark // {missing[0]}")
    found[LAUNCH] = part_lines(text, LAUNCH)
    links = [f'<a href="#L{lines.start}">{name}</a>'
             for lines, name in sorted(((lines, name) for name in found for lines in found[name]), key=lambda part: part[0].start)]
    return f'<nav class="parts" aria-label="Parts of the kernel">{" ".join(links)}</nav>'


class Kernel(SphinxDirective):
    """```{kernel} 03_kvpipe```: all of kernel.cuh, the lines that the rung changed marked, with links to its parts."""
    required_arguments = 1

    def run(self):
        rung = rung_named("{kernel}", self.arguments[0])
        marked = {n for _, new in (changes.hunks(rungs.by_name()[rung.previous], rung) if rung.previous else []) for n in new}
        lines = highlighted(rung)
        return [nodes.raw("", parts(rung) + code(lines, range(1, len(lines) + 1), "kernel", marked, anchors=True), format="html")]


class Region(SphinxDirective):
    """```{region} 03_kvpipe SOFTMAX```: a part of kernel.cuh, by its mark or by the name of a function."""
    required_arguments = 2

    def run(self):
        rung, name = rung_named("{region}", self.arguments[0]), self.arguments[1]
        try:
            found = region_lines(rung.name, name)
        except results.ResultsError as error:
            raise ExtensionError(str(error)) from None
        lines = highlighted(rung)
        where = ", ".join(f"{part.start}-{part.stop - 1}" for part in found)
        blocks = '<div class="fold">...</div>'.join(code(lines, part) for part in found)
        return [nodes.raw("", f'<figure class="region" data-region="{rung.name} {name}"><div>{blocks}</div><figcaption>'
                          f'<code>{rung.directory}/kernel.cuh</code>, lines {where}</figcaption></figure>', format="html")]
