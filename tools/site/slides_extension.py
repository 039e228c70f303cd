"""slides.html beside the site, for a lecture: one slide for each page of the foundations and two for each rung. What
stands on them comes from the chapter (question, drawing, prediction, measured rows, lines to take out), from the
kernels (the lines that changed) and from the rung (idea and limit). The page holds all that it needs in itself, so it
can be copied alone. slides.py prints it."""
from __future__ import annotations

import html
import re
from pathlib import Path

from markdown_it import MarkdownIt
from pygments.formatters import HtmlFormatter
from sphinx.errors import ExtensionError

from tools import changes, results, rungs
from tools.paths import DOCS, SITE
from tools.site import book_extension, prose, readme
from tools.site.code_style import Light
from tools.site.course_extension import by_rung, number
from tools.site.kernels import highlighted
from tools.site.site_extension import DRAWINGS, first_of_fragments, scheme
from tools.site.sketch import bare, Sketch

FOUNDATIONS = ("attention", "gpu", "softmax", "fragments")  # the last where its first rung stands
LINES = 10  # of code on a slide
ROWS = 25  # of a table; more stand in two columns
STATIC = SITE / "static"
ASK = "First predict it yourself: what becomes faster, by how much, and which count falls?"
ASK_OF_THE_FIRST = "First predict it yourself: how many TFLOPS, and does it depend on n?"


def words(text: str) -> str:
    """Markdown as HTML, without links: on a slide there is nowhere to go."""
    return MarkdownIt("commonmark", {"html": False}).enable("table").render(re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text))


def inline(text: str) -> str:
    return words(text).removeprefix("<p>").removesuffix("</p>\n")


def first_table(text: str) -> str:
    found = re.search(r"^\|.*?(?=^(?!\|)|\Z)", text, re.M | re.S)
    return found[0] if found else ""


def first_sentences(text: str, letters: int = 100) -> str:
    """What is said before the first table, up to so many letters of it and to the end of a sentence."""
    said = " ".join(text.partition("\n|")[0].split())
    for end in re.finditer(r"(?<![A-Z])[.:?](?= |$)", said):
        if end.end() > letters or end.end() == len(said):
            return said[:end.end()]
    return said


def part_of(text: str, pattern: str, where: str) -> str:
    found = re.search(pattern, text, re.M | re.S)
    if not found:
        raise ExtensionError(f"{where} has nothing like {pattern}")
    return found[1].strip()


def is_code(line: str) -> bool:
    bare = line.strip()
    return bool(bare) and not bare.startswith(("//", "#", "static_assert")) and bare not in ("{", "}")


def names_in(line: str) -> set[str]:
    """Of a line of code; what it calls counts for more, so it is here under a second name."""
    code = line.partition("//")[0]
    return set(re.findall(r"[A-Za-z_]\w+", code)) | {f"{name}()" for name in re.findall(r"([A-Za-z_]\w+)(?:<[^<>]*>)?\(", code)}


def stretch(lines: list[int], text: list[str], known: set[str], most: int) -> tuple[int, list[int]]:
    """Of the lines that changed in one place the `most` that follow each other and say most that the other kernel does
    not know; and how much."""
    code = [n for n in lines if is_code(text[n - 1])]
    news = [len(names_in(text[n - 1]) - known) for n in code]
    best = max(range(len(code) - most + 1), key=lambda i: sum(news[i:i + most]), default=0) if len(code) > most else 0
    return sum(news[best:best + most]), code[best:best + most]


def key_lines(rung: rungs.Rung) -> str:
    """The places that say most that is new, or say it no more, in the order of the file and as far as they fit."""
    text, shown = rung.kernel.read_text(encoding="utf-8").splitlines(), highlighted(rung)
    if not rung.previous:
        first = next(n for n, line in enumerate(text, 1) if line.startswith("__global__"))
        return block([("plain", shown[n - 1]) for n in range(first, min(text.index("}", first) + 2, first + LINES))])
    before = rungs.by_name()[rung.previous]
    old_text, old_shown = before.kernel.read_text(encoding="utf-8").splitlines(), highlighted(before)
    old_names, new_names = set().union(*map(names_in, old_text)), set().union(*map(names_in, text))
    places = []
    for old, new in changes.hunks(before, rung):
        lost, removed = stretch(list(old), old_text, new_names, 4)
        won, added = stretch(list(new), text, old_names, 6)
        if removed or added:
            lines = [("removed", old_shown[n - 1]) for n in removed] + [("added", shown[n - 1]) for n in added]
            places.append((lost + 2 * won, new.start, lines))
    told, room = [], LINES
    for _, at, lines in sorted(places, key=lambda place: (-place[0], -len(place[2]), place[1])):
        if len(lines) <= room:
            told.append((at, lines))
            room -= len(lines)
    told.sort(key=lambda place: place[0])
    return block([line for i, (_, lines) in enumerate(told) for line in [*([("gap", "")] if i else []), *lines]])


def block(lines: list[tuple[str, str]]) -> str:
    """Lines of HTML with their kinds; what all of them are indented by goes."""
    bare = [re.sub(r"<[^>]+>", "", line) for kind, line in lines if kind != "gap" and line.strip()]
    indent = min((len(line) - len(line.lstrip()) for line in bare), default=0)
    signs = {"removed": "-", "added": "+", "gap": "", "plain": " "}
    margin = re.compile(rf"^((?:<[^>]+>)*) {{{indent}}}")
    spans = [f'<span class="{kind}">{signs[kind]} ' + margin.sub(r"\1", line) + "\n</span>" for kind, line in lines]
    return f'<pre class="highlight">{"".join(spans)}</pre>'


def svg_of(svg: str) -> str:
    return f'<figure class="drawing">{bare(re.search(r"<svg.*</svg>", svg, re.S)[0])}</figure>'


def drawing(rung: rungs.Rung) -> str:
    return svg_of((rung.path / "drawing.svg").read_text(encoding="utf-8"))


def slide(name: str, title: str, inside: str, kind: str = "") -> str:
    return f'<section class="slide {kind}" id="{name}" data-rung="{name.partition(".")[0]}"><h2>{title}</h2>{inside}</section>'


def fold(summary: str, inside: str) -> str:
    """Open on paper and without scripts; slides.js closes it until the next step."""
    return f"<details open><summary>{summary}</summary>{inside}</details>"


def rung_slides(rung: rungs.Rung) -> list[str]:
    where, text = f"{rung.directory}/README.md", prose.INLINE.sub(r"\2", (rung.path / "README.md").read_text(encoding="utf-8"))
    title = inline(text.partition("\n")[0].removeprefix("# "))
    predicted = part_of(text, r"\*\*What we predict\.\*\*(.*?)(?=^\*\*|^## )", where)
    measured = part_of(text, r"<!-- measured:begin -->\n(.*?)<!-- measured:end -->", where)
    lines = re.findall(r"^\| (.+?) \| <details><summary>answer", part_of(text, r"^## What breaks[^\n]*\n(.*?)(?=^\*\*To go on|\Z)", where), re.M)
    onward = part_of(text, r"^\*\*To go on\.\*\*(.*?)(?=<details>)", where)
    table, happened = first_table(predicted), (first_table(measured) or measured).replace(" (this rung)", "")
    first = slide(f"{rung.name}.1", title, f'<div class="columns"><div>{drawing(rung)}</div><div>{words("**Before.** " + rung.limit)}{words("**The idea.** " + rung.idea)}'
                  f'{fold("We predict", words(first_sentences(predicted)) + words(table))}</div></div><p class="ask">{ASK if rung.previous else ASK_OF_THE_FIRST}</p>')
    count = f"{changes.since_previous()[rung.name][1]} lines differ from {rung.previous}" if rung.previous else "The first of its kernels"
    broken = "".join("<li>" + inline(line.replace("\\|", "|")) + "</li>" for line in lines[:3])
    its_own = next((of for other, of in by_rung() if other == rung), [])
    tasks = ", ".join(f"{number(each)} {html.escape(each.title)} ({each.minutes} min)" for each in its_own)
    filled = any(each.kind == "fill" for each in its_own)  # then the change is the answer
    second = slide(f"{rung.name}.2", title, f'<p class="count">{count}.</p>{fold("The change", key_lines(rung)) if filled else key_lines(rung)}<div class="columns"><div>{fold("What happened", words(happened))}</div>'
                   f'<div><p><b>Take it out: what does the check say?</b></p><ul>{broken}</ul>{words("**To go on.** " + first_sentences(onward))}'
                   + (f"<p><b>Exercises.</b> {tasks}</p>" if tasks else "") + "</div></div>")
    return [first, second]


def foundation(name: str) -> str:
    """A page of docs: its first drawing, what it speaks of, its first table if that needs no formulas, its question."""
    text = prose.INLINE.sub(r"\2", (DOCS / f"{name}.md").read_text(encoding="utf-8"))  # numbers without their formulas
    text = re.sub(r"\$(\w)\$", r"*\1*", text)
    drawn, file = re.search(r"^```\{drawing\} (\S+)|^!\[[^\]]*\]\((drawings/\S+\.svg)\)", text, re.M).groups()
    shown = (DOCS / file).read_text(encoding="utf-8") if file else (DRAWINGS[drawn]() if drawn in DRAWINGS else scheme(drawn)).svg("")
    said = "".join(f"<li>{inline(heading)}</li>" for heading in re.findall(r"^## (.*)", text, re.M))
    table = first_table(text)
    question = part_of(text, r"^\*\*To go on\.\*\*(.*?)(?=<details>)", f"docs/{name}.md")
    return slide(f"docs-{name}", inline(text.partition("\n")[0].removeprefix("# ")), f'<div class="columns"><div>{svg_of(shown)}</div><div><ul>{said}</ul>'
                 f'{words("" if "$" in table else table)}{words("**To go on.** " + " ".join(question.split()))}</div></div>')


def part_slide(part: rungs.Part) -> str:
    measured = {row.stage: row for row in book_extension.measured()[0]}
    rows = [f"| {rung.name} | {f'{measured[rung.name].tflops:.1f}' if rung.name in measured else ''} | {readme.title(rung)} |" for rung in part.rungs]
    title = part.title.partition(":")[0] if part.name else "The ladder, 00 to 07"
    most = len(rows) if len(rows) <= ROWS else (len(rows) + 1) // 2
    tables = [words("\n".join(["| rung | TFLOPS | idea |", "|---|---:|---|", *rows[at:at + most]])) for at in range(0, len(rows), most)]
    inside = tables[0] if len(tables) == 1 else f'<div class="columns">{"".join(f"<div>{table}</div>" for table in tables)}</div>'
    return slide(f"part-{part.name or 'ladder'}", html.escape(title), inside, "part")


def deck() -> list[str]:
    sketch: Sketch = book_extension.climb()
    slides = [slide("start", "flash-ladder: FlashAttention, one idea at a time", svg_of(sketch.svg("")) + f"<p>{html.escape(sketch.title)}</p>", "first")]
    slides += [foundation(name) for name in FOUNDATIONS[:-1]]
    begun: set[str] = set()
    for rung in rungs.known():
        if rung == first_of_fragments():
            slides.append(foundation(FOUNDATIONS[-1]))
        part = next(part for part in rungs.parts() if part.name == rung.part)
        if part.name not in begun:
            begun.add(part.name)
            slides.append(part_slide(part))
        slides += rung_slides(rung)
    return slides


def page() -> str:
    light = (STATIC / "drawing.css").read_text(encoding="utf-8")
    light = re.sub(r"@media screen and \(prefers-color-scheme: dark\) \{\n.*?^\}\n", "", light, flags=re.M | re.S)  # ink on paper
    style = light + HtmlFormatter(style=Light).get_style_defs(".highlight") + (STATIC / "slides.css").read_text(encoding="utf-8")
    return (f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" content="width=1280">\n<title>flash-ladder: slides</title>\n<style>\n{style}</style>\n</head>\n'
            f'<body>\n{chr(10).join(deck())}\n<script>\n{(STATIC / "slides.js").read_text(encoding="utf-8")}</script>\n</body>\n</html>\n')


def finish(app, exception) -> None:
    if exception or app.builder.format != "html":
        return
    try:
        (Path(app.outdir) / "slides.html").write_text(page(), encoding="utf-8")
    except (OSError, results.ResultsError, rungs.RungsError) as error:
        raise ExtensionError(f"slides.html: {error}") from None


def setup(app):
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True}
