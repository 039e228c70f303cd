"""What the page on traffic is made of: figures of docs/figures with the same as a table, and trials. What was not measured yet says so; a figure that is older than its data stops the build."""
from __future__ import annotations

import argparse
import csv
import html
import importlib
import re

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import results
from tools.plots import figure, traffic
from tools.site import prose
from tools.site.blocks import LATER


def table(head: list[str], rows: list[list[str]], caption: str = "") -> str:
    cells = lambda row, tag: "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)
    body = "".join(f'<tr><th scope="row">{html.escape(row[0])}</th>{cells(row[1:], "td")}</tr>' for row in rows)
    titles = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in head)
    return (f"<table>{f'<caption>{html.escape(caption)}</caption>' if caption else ''}<thead><tr>{titles}</tr></thead>"
            f"<tbody>{body}</tbody></table>")


def with_reasons(head: list[str], rows: list[list[str]]) -> str:
    """A table whose last column stands below each row, as wide as the table: a column of sentences would leave a
    phone."""
    reasons = iter(row[-1] for row in rows)
    below = lambda _: f'</tr><tr><td colspan="{len(head)}">{html.escape(next(reasons))}</td></tr>'
    return re.sub(r"</tr>(?=<tr>|</tbody>)", below, table(head, [row[:-1] for row in rows]))


class Plot(SphinxDirective):
    """```{plot} bytes_over_n```, and its text alternative as content: a figure of tools/plots, and its table."""
    required_arguments = 1
    has_content = True

    def run(self):
        module = importlib.import_module(f"tools.plots.{self.arguments[0]}")
        path = figure.RESULTS / module.CSV
        self.env.note_dependency(str(path))
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        try:
            rows = (results.traffic if module.CSV == traffic.FILE else results.read)(path)
            points = module.collect(path, rows, parser.parse_args([]))
        except results.NotMeasured:
            return [nodes.paragraph("", f"This figure is {LATER}.", classes=["not-measured"])]
        except results.ResultsError as error:
            raise ExtensionError(f"{{plot}} {self.arguments[0]}: {error}") from None
        svg = figure.path_of(path, module.NAME)
        if not figure.is_current(svg, points):
            raise ExtensionError(f"{{plot}} {self.arguments[0]}: {svg} is missing or older than {path}; run: make plots")
        tables = "".join(table(head, body, caption) for caption, head, body in module.table(points))
        alternative = f"{points['title']}. {' '.join(self.content)}"
        twin = f"<details><summary>The same as a table</summary>{tables}</details>"
        picture = nodes.paragraph("", "", nodes.image(uri=f"figures/{svg.name}", alt=alternative))  # scrolls on a phone
        return [picture, nodes.raw("", twin, format="html")]


class Trials(SphinxDirective):
    """```{trials} h200_trials.csv```: a file of docs/results whose last column says what we make of a row."""
    required_arguments = 1

    def run(self):
        path = figure.RESULTS / self.arguments[0]
        self.env.note_dependency(str(path))
        try:
            with path.open(encoding="utf-8", newline="") as file:
                head, *rows = csv.reader(file, strict=True)
        except (OSError, ValueError, csv.Error) as error:
            raise ExtensionError(f"{{trials}} {path}: {error}") from None
        if not rows or any(len(row) != len(head) for row in rows):
            raise ExtensionError(f"{{trials}} {path}: not every row has the {len(head)} cells of the first")
        return [nodes.raw("", with_reasons(head[:-1], rows), format="html")]


def measured_role(_role, _raw, text, _line, _inliner, options=None, content=None):
    """{measured}`EXPRESSION:FORMAT`: a number as {number} has it, or that it was not measured yet."""
    try:
        shown = prose.number(text)
    except results.NotMeasured:
        shown = f"[{LATER}]"
    except results.ResultsError as error:
        raise ExtensionError(f"{{measured}}`{text}`: {error}") from None
    return [nodes.inline(text, shown, classes=["number"])], []


def setup(app):
    app.add_directive("plot", Plot)
    app.add_directive("trials", Trials)
    app.add_role("measured", measured_role)
    return {"parallel_read_safe": True}
