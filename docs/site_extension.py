"""What the site draws from the repository: chapters with their diffs and kernels, figures from the layout functions of the
code, numbers from docs/results, and formulas set by a local KaTeX. Whatever is missing stops the build."""
from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "harness" / "plots"))
import results  # noqa: E402
from drawings import DRAWINGS  # noqa: E402

KATEX = Path("/usr/share/javascript/katex")
STAGES = sorted(path.parent.name for path in ROOT.glob("[0-9][0-9]*_*/stage.cu"))


def previous(stage: str) -> str | None:
    """The rung that a rung is compared with; 00 is the reference, not a predecessor."""
    before = [other for other in STAGES if other < stage and not other.startswith("00")]
    return before[-1] if before else None


# ---- kernels and their differences ------------------------------------------------------------------------------------

def kernel_path(stage: str) -> Path:
    return ROOT / stage / "kernel.cuh"


def highlighted(stage: str) -> list[str]:
    """The lines of a kernel as HTML."""
    text = kernel_path(stage).read_text(encoding="utf-8")
    lines = highlight(text, CudaLexer(stripnl=False), HtmlFormatter(nowrap=True)).rstrip("\n").split("\n")
    if len(lines) != len(text.splitlines()):
        raise ExtensionError(f"{kernel_path(stage)}: a token runs over the end of its line")
    return lines


def hunks(before: str, stage: str) -> list[tuple[range, range]]:
    """Where two kernels differ: lines of the one, lines of the other, from 1. By diff, as `make diff` counts them."""
    output = subprocess.run(["diff", "--minimal", kernel_path(before), kernel_path(stage)], capture_output=True, text=True).stdout
    found = []
    for first, last, kind, new_first, new_last in re.findall(r"^(\d+)(?:,(\d+))?([acd])(\d+)(?:,(\d+))?$", output, re.M):
        old = range(int(first), int(last or first) + 1) if kind != "a" else range(int(first) + 1, int(first) + 1)
        new = range(int(new_first), int(new_last or new_first) + 1) if kind != "d" else range(int(new_first) + 1, int(new_first) + 1)
        found.append((old, new))
    return found


def code(lines: list[str], numbers: range, kind: str = "", marked: set[int] = frozenset(), anchors: bool = False) -> str:
    spans = []
    for n in numbers:
        mark = " changed" if n in marked else ""
        anchor = f' id="L{n}"' if anchors else ""
        spans.append(f'<span class="line{mark}" data-n="{n}"{anchor}>{lines[n - 1]}\n</span>')
    return f'<pre class="highlight {kind}">{"".join(spans)}</pre>'


def side_by_side(before: str, stage: str, context: int = 3) -> str:
    """A grid of two columns, one row for each stretch of equal or changed lines; equal stretches fold in the middle."""
    old_lines, new_lines = highlighted(before), highlighted(stage)
    rows, at_old, at_new, count = [f"<div>{before}</div><div>{stage}</div>"], 1, 1, 0

    def equal(old: range, new: range, kind: str = "equal") -> None:
        if new:
            rows.append(code(old_lines, old, kind + " old") + code(new_lines, new, kind + " new"))

    changes = hunks(before, stage)
    for old, new in [*changes, (range(len(old_lines) + 1, 0), range(len(new_lines) + 1, 0))]:
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
    return (f'<div class="side-by-side" data-changed="{count}" role="group" aria-label="{count} changed lines between {before} '
            f'and {stage}">{"".join(rows)}</div>')


class RungDiff(SphinxDirective):
    """```{rung-diff} 03_kvpipe```: what changed in kernel.cuh since the rung before."""
    required_arguments = 1

    def run(self):
        return [nodes.raw("", side_by_side(previous(self.arguments[0]), self.arguments[0]), format="html")]


class Kernel(SphinxDirective):
    """```{kernel} 03_kvpipe```: all of kernel.cuh, the lines that the rung changed marked."""
    required_arguments = 1

    def run(self):
        stage, before = self.arguments[0], previous(self.arguments[0])
        marked = {n for _, new in (hunks(before, stage) if before else []) for n in new}
        lines = highlighted(stage)
        return [nodes.raw("", code(lines, range(1, len(lines) + 1), "kernel", marked, anchors=True), format="html")]


class Drawing(SphinxDirective):
    """```{drawing} fragment-A```: one of drawings.py."""
    required_arguments = 1

    def run(self):
        try:
            return [nodes.raw("", DRAWINGS[self.arguments[0]](), format="html")]
        except (KeyError, OSError, ValueError, subprocess.CalledProcessError) as error:
            raise ExtensionError(f"{{drawing}} {self.arguments[0]}: {error!r}") from None


def chapter_tail(stage: str) -> str:
    text = "\n\n"
    if before := previous(stage):
        count = sum(max(len(old), len(new)) for old, new in hunks(before, stage))
        text += f"## The change, line by line\n\n{count} lines differ from {before}.\n\n```{{rung-diff}} {stage}\n```\n\n"
    marked = " The lines that this rung changed are marked." if before else ""
    return text + f"## The whole kernel\n\n`{stage}/kernel.cuh`.{marked}\n\n```{{kernel}} {stage}\n```\n"


def read_source(app, docname: str, source: list[str]) -> None:
    """Links to folders, which a code host shows as pages, lead to their README; a chapter gets its diff and its kernel."""
    folder = (ROOT / docname).parent

    def link(match: re.Match) -> str:
        path = folder / match[2]
        if not path.is_dir():
            return match[0]
        return f"[{match[1]}]({match[2].rstrip('/')}/README.md)" if (path / "README.md").exists() else match[1]

    source[0] = re.sub(r"\[([^\]\[]+)\]\(([^)#:\s]+)\)", link, source[0])
    stage, _, page = docname.rpartition("/")
    if stage in STAGES and page == "README":
        source[0] += chapter_tail(stage)


# ---- numbers ----------------------------------------------------------------------------------------------------------

def h200(stage: str) -> results.Row:
    """The row of docs/results/h200.csv at the shape of the README's table."""
    for row in results.read(ROOT / "docs" / "results" / "h200.csv"):
        if row.stage == stage and row.source == "measured" and results.Selection().takes(row):
            return row
    raise ExtensionError(f"docs/results/h200.csv: no row of {stage} at {results.Selection()}")


def readme_cell(stage: str, column: str) -> str:
    """A cell of the README's table, which a test keeps current: what the emulator counted."""
    table = [[cell.strip() for cell in line.strip("|\n").split("|")]
             for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    head = next((cells for cells in table if cells[0] == "rung"), [])
    for cells in table:
        if column in head and cells[0].startswith(f"[{stage}]"):
            return cells[head.index(column)]
    raise ExtensionError(f"README.md: its table has no {column} of {stage}")


NUMBERS = {
    "tflops": lambda stage: f"{h200(stage).tflops:.1f}",
    "gain": lambda stage: f"{100 * (h200(stage).vs_previous - 1):+.1f} %",
    "of-fa2": lambda stage: f"{100 * h200(stage).vs_fa2:.1f} %",
    "bytes-read": lambda stage: readme_cell(stage, "global memory read"),
    "wavefronts": lambda stage: readme_cell(stage, "shared-memory wavefronts"),
}


def number_role(name: str):
    def role(_role, _raw, text, _line, _inliner, options=None, content=None):
        try:
            return [nodes.inline(text, NUMBERS[name](text), classes=["number"])], []
        except (results.ResultsError, TypeError) as error:
            raise ExtensionError(f"{{{name}}}`{text}`: {error}") from None
    return role


# ---- formulas ---------------------------------------------------------------------------------------------------------

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
    dark = HtmlFormatter(style="monokai").get_style_defs(".highlight")
    (static / "dark.css").write_text(f"@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}\n", encoding="utf-8")


def setup(app):
    app.connect("source-read", read_source)
    app.connect("build-finished", finish)
    app.add_directive("rung-diff", RungDiff)
    app.add_directive("kernel", Kernel)
    app.add_directive("drawing", Drawing)
    for name in NUMBERS:
        app.add_role(name, number_role(name))
    app.add_html_math_renderer("katex", (formula("span", "false"), None), (formula("div", "true"), None))
    for name in ("katex.min.js", "site.js"):
        app.add_js_file(name)
    for name in ("katex.min.css", "dark.css", "site.css"):
        app.add_css_file(name)
    return {"parallel_read_safe": True}
