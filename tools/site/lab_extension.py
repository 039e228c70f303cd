"""```{bench-lab}```: the measured results as an interactive chart. The page carries the files of docs/results as they
stand, read and checked here by the code that the plots use, with the columns of docs/results/schema.json, by
which the page reads a reader's own file."""
from __future__ import annotations

import html
import json
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import results, rungs
from tools.paths import ROOT

SCRIPTS = ("lab_csv.js", "lab_view.js", "lab_chart.js", "lab.js")


def files() -> list[tuple[Path, str]]:
    """docs/results/GPU.csv and GPU_traffic.csv, with the names of their forms. mutants.csv is of no card. The card of the book's tables comes
    first, for the page begins with the first one: another one need not have the headline's problem."""
    found = []
    for path in sorted((ROOT / "docs" / "results").glob("*.csv"), key=lambda path: (path.stem.partition("_")[0] != "h200", path)):
        _, _, what = path.stem.partition("_")
        if what in ("", "traffic") and path.stem != "mutants":
            found.append((path, what or "results"))
    return found


def text_of(path: Path, form: str) -> str:
    """The file as it stands, but for rows of rungs that the ladder no longer has."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in [lines[0], *(lines[row.line - 1] for row in results.read(path, form))])


def data() -> str:
    """For a script element: no `<` may stand in it."""
    value = {
        "forms": {form: {key: results.SCHEMA[form][key] for key in ("properties", "required")} for form in ("results", "traffic")},
        "rungs": rungs.names(),
        "line": [rung.name for rung, _ in rungs.by_line()],
        "parts": {rung.name: rung.part or "ladder" for rung in rungs.known()},
        "headline": results.HEADLINE,
        "files": [{"name": path.name, "form": form, "text": text_of(path, form)} for path, form in files()],
    }
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def interval(row: results.Row, name: str) -> str:
    value, low, high = (getattr(row, name + part) for part in ("", "_lo", "_hi"))
    return "" if value is None else f"{value:.3f}" if low is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


def table(path: Path, rows: list[results.Row]) -> str:
    """What a page without JavaScript shows: the headline shape."""
    selection = results.Selection()
    taken = [row for row in rows if row.source == "measured" and selection.takes(row) and (row.kind != "stage" or row.is_rung)]
    order = {"stage": 0, "peer": 1, "ceiling": 2}
    lines = []
    for row in sorted(taken, key=lambda row: (order[row.kind], rungs.position(row.stage))):
        share = "" if row.pct_ceiling is None else f"{row.pct_ceiling:.1f} %"
        cells = (f"{row.tflops:.4g}", f"{row.ms_median:.4g} [{row.ms_p20:.4g}, {row.ms_p80:.4g}]", share,
                 interval(row, "vs_previous"), interval(row, "vs_fa2"))
        lines.append(f'<tr><th scope="row">{html.escape(row.stage)}</th><td>{row.kind}</td>'
                     + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{name}</th>' for name in (
        "rung", "kind", "TFLOPS", "ms [p20, p80]", "of its ceiling", "times the rung before [95 %]", "times FA2 [95 %]"))
    caption = html.escape(f"{rows[0].gpu}, {selection}: {path.name}")
    return f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


class BenchLab(SphinxDirective):
    def run(self):
        tables = []
        for path, form in files():
            self.env.note_dependency(str(path))
            try:
                read = results.read(path, form)
                if form == "results":
                    tables.append(table(path, read))
            except results.ResultsError as error:
                raise ExtensionError(f"{{bench-lab}}: {error}") from None
        return [nodes.raw("", f'<div class="bench-lab"><div class="without-script">{"".join(tables)}</div>'
                              f'<script type="application/json">{data()}</script></div>', format="html")]


def only_where_it_is(app, pagename, templatename, context, doctree) -> None:
    if 'class="bench-lab"' in context.get("body", ""):
        app.add_css_file("lab.css")
        for name in SCRIPTS:
            app.add_js_file(name)


def setup(app):
    app.add_directive("bench-lab", BenchLab)
    app.connect("html-page-context", only_where_it_is)
    return {"parallel_read_safe": True}
