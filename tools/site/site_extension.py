"""What the site draws from the repository: chapters with their diffs and kernels, figures from the layout functions of
the code, and formulas set by a local KaTeX. Whatever is missing stops the build."""
from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from pygments.formatters import HtmlFormatter
from sphinx.directives.other import TocTree
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import changes, results, rungs
from tools.paths import DOCS, ROOT
from tools.site import blocks, glossary_links, prose
from tools.site.code_style import Dark
from tools.site.drawings import DRAWINGS
from tools.site.kernels import Kernel, Region, RungDiff
from tools.site.schemes import scheme
from tools.site.sketch import bare, inline

KATEX = Path("/usr/share/javascript/katex")


def page_of_part(part: str) -> str | None:
    """The README of a part, as a document; None where it has none (yet)."""
    return f"{part}/README" if part and (ROOT / part / "README.md").is_file() else None


FRAGMENTS = "docs/fragments"  # a page that is read before the first kernel that loads them


def first_of_fragments() -> rungs.Rung:
    return next(rung for rung in rungs.known() if "ldmatrix_" in rung.kernel.read_text(encoding="utf-8"))


def contents(part: str | None) -> list[str]:
    """The chapters of a part in the ladder's order, but for those that hang under one of its rungs: they are in the contents of that one's
    chapter. Without a part: those of the ladder's top level and, where its first rung stands, the page of each part."""
    pages = []
    for rung in rungs.known():
        if rung == first_of_fragments() and part == rung.part:
            pages.append(FRAGMENTS)
        page = None if part else page_of_part(rung.part)
        if part in (None, rung.part) and (page or above(rung) is None) and (page := page or f"{rung.directory}/README") not in pages:
            pages.append(page)
    return pages


def above(rung: rungs.Rung) -> rungs.Rung | None:
    """The rung of the line in whose chapter's contents it is."""
    line = rungs.by_name()[rung.line]
    return line if rung != line and rung.part == line.part else None


class Rungs(TocTree):
    """```{rungs}```: the ladder, in its order; ```{rungs} past_fa2```: the chapters of a part."""
    required_arguments = 0
    optional_arguments = 1
    has_content = False

    def run(self):
        pages = contents(self.arguments[0] if self.arguments else None)
        if not pages:
            raise ExtensionError(f"{{rungs}} {self.arguments[0]}: there is no such part")
        self.content = StringList([f"/{page}" for page in pages], source=self.env.docname)
        return super().run()


class Drawing(SphinxDirective):
    """```{drawing} fragment-A```: one of drawings.py or schemes.py."""
    required_arguments = 1

    def run(self):
        name = self.arguments[0]
        try:
            return [nodes.raw("", inline(DRAWINGS[name]() if name in DRAWINGS else scheme(name)), format="html")]
        except (KeyError, OSError, ValueError, results.ResultsError, subprocess.CalledProcessError) as error:
            raise ExtensionError(f"{{drawing}} {name}: {error!r}") from None


class Sketch(SphinxDirective):
    """```{sketch} drawing.svg```: a file that draw.py wrote, inside the page, so that it follows its colours."""
    required_arguments = 1

    def run(self):
        path = (ROOT / self.env.docname).parent / self.arguments[0]
        self.env.note_dependency(str(path))
        svg = bare(path.read_text(encoding="utf-8"))
        title = re.search(r"<title>(.*?)</title>", svg)[1]
        return [nodes.raw("", f'<figure class="drawing">{svg}<figcaption>{title}</figcaption></figure>', format="html")]


def is_sketch(path: Path) -> bool:
    return path.is_file() and 'class="sketch"' in path.read_text(encoding="utf-8").partition("\n")[0]


def chapter(rung: rungs.Rung, text: str) -> str:
    """A chapter as the site shows it: the change in front of what happened, the whole kernel at the end."""
    stage, docs, marked = rung.name, os.path.relpath(DOCS, rung.path), ""
    if before := rung.previous:
        marked = " The lines that this rung changed are marked."
        count = changes.since_previous()[stage][1]
        diff = f"## The change, line by line\n\n{count} lines differ from {before}.\n\n```{{rung-diff}} {stage}\n```\n\n"
        text, found = re.subn(r"^## What happened$", lambda match: diff + match[0], text, flags=re.M)
        if found != 1:
            raise ExtensionError(f"{rung.directory}/README.md has {found} sections '## What happened', wants 1")
    if scheme(f"counters-{stage}"):
        shown = f"```{{drawing}} counters-{stage}\n```\n"
        begin, fold, rest = text.partition("<details><summary>All rows")
        head, close, rest = rest.partition("\n</details>")
        text = f"{begin}{fold}{head}\n{shown}{close}{rest}" if fold else text.replace("<!-- measured:end -->", f"<!-- measured:end -->\n\n{shown}", 1)
    beside = [f"/{other.directory}/README" for other in rungs.known() if above(other) == rung]
    if beside:
        pages = "\n".join(beside)
        text += f"\n\n## Beside the line, from here\n\n```{{toctree}}\n:maxdepth: 1\n:titlesonly:\n\n{pages}\n```\n"
    steps = f' <a href="{docs}/player.html#stage={stage}">Step through it</a>.'
    return f"{text}\n\n## The whole kernel\n\n`{rung.directory}/kernel.cuh`.{marked}{steps}\n\n```{{kernel}} {stage}\n```\n"


def part_page(part: rungs.Part, text: str) -> str:
    """The README of a part, and below it its rungs."""
    return f"{text}\n\n```{{rungs}} {part.name}\n:maxdepth: 1\n:titlesonly:\n```\n"


def read_source(app, docname: str, source: list[str]) -> None:
    """Links to folders, which a code host shows as pages, lead to their README; drawings stand in the page; comments
    that a code host hides become what they name, numbers, `<!-- drawing NAME -->`, and by `<!-- site NAME WORDS -->` any directive, whose
    content may stand in lines of its own; a chapter gets its diff and its kernel."""
    folder = (ROOT / docname).parent

    def link(match: re.Match) -> str:
        path = folder / match[2]
        if not path.is_dir():
            return match[0]
        return f"[{match[1]}]({match[2].rstrip('/')}/README.md)" if (path / "README.md").exists() else match[1]

    def block(match: re.Match) -> str:
        """As it stands in the page, but for a part of a rung's kernel, which the site shows with its lines' numbers."""
        is_of_a_rung = match[1] == "region" and "/" not in match[2]
        return f"```{{region}} {match[2].strip()}\n```" if is_of_a_rung else match[3]

    source[0] = re.sub(r"\[([^\]\[]+)\]\(([^)#:\s]+)\)", link, source[0])
    source[0] = re.sub(r"^<!-- drawing (\S+) -->$", r"```{drawing} \1\n```", source[0], flags=re.M)
    source[0] = re.sub(r"^<!-- player (\S+) (.+) -->$", r"```{trace-player} \1\n:at: \2\n```", source[0], flags=re.M)
    source[0] = re.sub(r"^!\[[^\]]*\]\((\S+\.svg)\)$",
                       lambda match: f"```{{sketch}} {match[1]}\n```" if is_sketch(folder / match[1]) else match[0], source[0], flags=re.M)
    source[0] = glossary_links.with_roles(docname, source[0])
    source[0] = re.sub(r"^<!-- site ([a-z-]+)(.*?)\n?-->$", r"```{\1}\2\n```", source[0], flags=re.M | re.S)
    source[0] = blocks.BLOCK.sub(block, source[0])
    source[0] = prose.INLINE.sub(r"\2", source[0])  # which chapters.py has computed
    for rung in rungs.known():
        if docname == f"{rung.directory}/README":
            source[0] = chapter(rung, source[0])
    for part in rungs.parts():
        if docname == page_of_part(part.name):
            source[0] = part_page(part, source[0])


# ---- formulas --------------------------------------------------------------------------------------------------------

def formula(tag: str, display: str):
    def visit(self, node):
        self.body.append(f'<{tag} class="formula" data-display="{display}">{html.escape(node.astext())}</{tag}>')
        raise nodes.SkipNode
    return visit


def finish(app, exception) -> None:
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    (static / "fonts").mkdir(exist_ok=True)
    for name in ("katex.min.js", "katex.min.css"):
        shutil.copy(KATEX / name, static / name)
    for font in (KATEX / "fonts").glob("*.woff2"):
        shutil.copy(font, static / "fonts")
    dark = HtmlFormatter(style=Dark).get_style_defs(".highlight")
    (static / "dark.css").write_text(f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}\n", encoding="utf-8")


def setup(app):
    app.connect("source-read", read_source)
    app.connect("doctree-read", glossary_links.link_first_uses)
    app.connect("build-finished", finish)
    app.add_directive("rung-diff", RungDiff)
    app.add_directive("kernel", Kernel)
    app.add_directive("region", Region)
    app.add_directive("rungs", Rungs)
    app.add_directive("drawing", Drawing)
    app.add_directive("sketch", Sketch)
    app.add_html_math_renderer("katex", (formula("span", "false"), None), (formula("div", "true"), None))
    for name in ("katex.min.js", "site.js"):
        app.add_js_file(name)
    for name in ("katex.min.css", "dark.css", "drawing.css", "site.css"):
        app.add_css_file(name)
    return {"parallel_read_safe": True}
