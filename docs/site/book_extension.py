"""What the pages before the first rung show of the repository: the words of its kernels beside those of plain CUDA."""
from __future__ import annotations

import re
from dataclasses import dataclass

from docutils import nodes
from docutils.statemachine import StringList
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import CudaLexer
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from paths import SITE

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
    if len(found) < 5 or len(found) != len(re.findall(r"^ *// .+ \| ", text, re.M)) - 1:  # the head of the file explains the form
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


def setup(app):
    app.add_directive("dialect", Dialect)
    return {"parallel_read_safe": True}
