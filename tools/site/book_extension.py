"""What the front page and the pages before the first rung show of the repository: the climb, a report of the emulator, and the words of these kernels beside those of plain CUDA."""
from __future__ import annotations

import functools
import html
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import results, rungs
from tools.paths import DOCS, SITE
from tools.site.sketch import FULL, inline, Sketch

H200 = DOCS / "results" / "h200.csv"
RECORDED = SITE / "recorded" / "without_wait.json"
# What others are called where there is room. The others go by the names that harness/peers gives them.
PEERS = {"fa2": "FlashAttention-2, in PyTorch", "fa2_source": "FlashAttention-2, built from source", "fa3": "FlashAttention-3", "triton": "our Triton kernel",
         "cudnn_bhnd": "cuDNN, in PyTorch"}
DIALECT = SITE / "dialect.cu"


@dataclass(frozen=True)
class Pair:
    """A line of plain CUDA and the line of these kernels that does the same."""

    what: str
    why: str
    plain: list[str]
    ours: list[str]


def statements(line: str) -> list[str]:
    return [statement.strip() + ";" for statement in line.split(";") if statement.strip()]


def pairs() -> list[Pair]:
    text = DIALECT.read_text(encoding="utf-8")
    found = re.findall(r"^ *// (.+?) \| (.+)\n *\{ (.+) \}\n *\{ (.+) \}$", text, re.M)
    # The head of the file explains the form.
    if len(found) < 5 or len(found) != len(re.findall(r"^ *// .+ \| ", text, re.M)) - 1:
        raise ExtensionError(f"{DIALECT}: a comment with a bar and no two lines in braces below it")
    return [Pair(what, why, statements(plain), statements(ours)) for what, why, plain, ours in found]


def coloured(text: str) -> str:
    return highlight(text, CudaLexer(), HtmlFormatter(nowrap=True)).rstrip("\n")


def listing(lines: list[str], kind: str) -> str:
    return f'<pre class="highlight {kind}">{coloured(chr(10).join(lines))}</pre>'


class Dialect(SphinxDirective):
    """```{dialect}```: the pairs of dialect.cu; ```{dialect} NAME```: one of its kernels."""
    optional_arguments = 1

    def run(self):
        if self.arguments:
            found = re.search(rf"^__global__ void {self.arguments[0]}\(.*?^}}$", DIALECT.read_text(encoding="utf-8"), re.M | re.S)
            if not found:
                raise ExtensionError(f"{{dialect}} {self.arguments[0]}: no such kernel in {DIALECT}")
            return [nodes.raw("", listing(found[0].split("\n"), "plain"), format="html")]
        shown: list[nodes.Node] = []
        for pair in pairs():
            said = nodes.container(classes=["pair-words"])
            self.state.nested_parse(StringList([f"**{pair.what}{'' if pair.what[-1] in '?!' else '.'}** {pair.why}."], source=self.env.docname), 0, said)
            code = (f'<div class="pair"><div><span>CUDA</span>{listing(pair.plain, "plain")}</div>'
                    f'<div><span>here</span>{listing(pair.ours, "ours")}</div></div>')
            shown += [said, nodes.raw("", code, format="html")]
        return shown


@functools.cache
def measured() -> tuple[list[results.Row], list[results.Row], list[results.Row]]:
    """Rungs, peers and ceilings at the README's shape."""
    return results.select(H200, results.read(H200), results.Selection())


def climb(here: Path | None = None) -> Sketch:
    """A bar for each rung that another one starts from, with others as lines. For a page in the folder `here`, a bar
    leads to its chapter."""
    timed, peers, _ = measured()
    known, starts = rungs.by_name(), {rung.previous for rung in rungs.known()}
    last = rungs.known()[-1].name
    bars = [row for row in timed if row.stage in starts or row.stage in (last, timed[-1].stage)]
    lines = [(PEERS[row.stage].split(",")[0], row.tflops) for row in peers if row.stage in ("fa2", "fa3", "cudnn_bhnd")]
    top = max([row.tflops for row in bars] + [rate for _, rate in lines])
    base, scale, left = 236.0, 200.0 / top, 2.0
    step = (FULL - 2 * left) / len(bars)
    sketch = Sketch(f"TFLOPS of every rung on an {bars[0].gpu} at {results.Selection()}; dashed: others",
                    " ".join(f"{row.stage}: {row.tflops:.1f}." for row in bars) + " " + " ".join(f"{name}: {rate:.0f}." for name, rate in lines))
    groups: list[list] = []
    for i, row in enumerate(bars):
        rung, x = known[row.stage], left + i * step
        if not groups or groups[-1][0] != rung.part:
            groups.append([rung.part, x, x, 0.0])
        groups[-1][2:] = [x + step - 2, row.tflops]
        if here:
            sketch.parts.append(f'<a href="{os.path.relpath(rung.path / "README.html", here)}"><title>{row.stage}: {row.tflops:.1f} TFLOPS</title>')
        sketch.box(x, base - row.tflops * scale, step - 2, row.tflops * scale, "work" if len(groups) % 2 else "copy")
        if here:
            sketch.parts.append("</a>")
    for name, rate in lines:
        sketch.line(left, base - rate * scale, FULL - left, base - rate * scale, "dashed")
    for part, start, stop, rate in groups:
        if stop - start < 50:  # the one rung in front of the prelude
            continue
        title = {"": "01 to 07", "prelude": "prelude", "past_fa2": "past FA2", "hopper": "Hopper", "models": "models"}.get(part, part)
        sketch.brace(start, stop, base + 4, title)
        sketch.text((start + stop) / 2, base + 33, f"{rate:.0f}", "label", "middle")
    for name, rate in lines:
        sketch.text(left, base - rate * scale - 4, f"{name}: {rate:.0f}", "label")
    return sketch


class Climb(SphinxDirective):
    """```{climb}```: the climb as bars that lead to the chapters."""

    def run(self):
        return [nodes.raw("", inline(climb((DOCS / "index.md").parent)), format="html")]


class Demonstration(SphinxDirective):
    """```{demonstration}```: the line that was taken out, and what the check then said (demonstration.py): the first
    report, the others folded."""

    def run(self):
        run = json.loads(RECORDED.read_text(encoding="utf-8"))
        reports = [n for n, line in enumerate(run["report"]) if line.startswith("  emulator_report")]
        if len(reports) < 2:
            raise ExtensionError(f"{RECORDED} has no reports; run: python3 -m tools.site.demonstration")
        first, rest = run["report"][:reports[1]], run["report"][reports[1]:]
        change = (f'<pre><span class="fold">{html.escape(run["file"])}</span>\n<span class="cut">-{run["line"]}  {html.escape(run["cut"])}</span></pre>')
        said = html.escape("\n".join([f"$ {run['command']}", *first]))
        folded = f"<details><summary>what else it says</summary><pre>{html.escape(chr(10).join(rest))}</pre></details>"
        return [nodes.raw("", f'<div class="demonstration">{change}<pre>{said}</pre>{folded}</div>', format="html")]


def setup(app):
    app.add_directive("climb", Climb)
    app.add_directive("demonstration", Demonstration)
    app.add_directive("dialect", Dialect)
    return {"parallel_read_safe": True}
