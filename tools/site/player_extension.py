"""The interactive pages: the trace player and the bank and fragment explorer. What they show is put into the page as
JSON, for a browser fetches nothing from a disk."""
from __future__ import annotations

import html
import json
import re
from collections import Counter

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from tools import rungs
from tools.kernel_parts import PARTS
from tools.site.drawings import dealt, layouts
from tools.site.kernels import code, highlighted
from tools.site import traces

SCRIPTS = {'class="player"': ("trace.js", "replay.js", "player.js"), 'class="explorer"': ("swizzle.js", "explorer.js")}


def embedded(kind: str, name: str, text: str) -> str:
    """JSON has no other use for "</" than inside a string, where the slash may be escaped."""
    return f'<script type="application/json" class="{kind}" data-name="{name}" id="{kind}={name}">' + text.replace("</", "<\\/") + "</script>"


def table(trace: dict) -> str:
    """The trace summed up by source line, for readers without JavaScript and on paper."""
    lines = rungs.by_name()[trace["stage"]].kernel.read_text(encoding="utf-8").splitlines()
    counts: Counter = Counter()
    for site, warp, *_ in trace["events"]:
        site = trace["sites"][site]
        memory = " from ".join(f"{level} {site[level]['buffer']}" for level in ("shared", "global") if level in site)
        counts[site["line"], site["instruction"], memory] += 1
    rows = "".join(f"<tr><td>{line}</td><td>{instruction}</td><td>{memory}</td><td>{count}</td><td><code>"
                   f"{html.escape(lines[line - 1].strip())}</code></td></tr>"
                   for (line, instruction, memory), count in sorted(counts.items()))
    return ('<table class="trace-table"><thead><tr><th>line</th><th>instruction</th><th>memory</th><th>warp instructions</th>'
            f'<th>source</th></tr></thead><tbody>{rows}</tbody></table>')


def carried(stage: str) -> str:
    """A rung's trace and its kernel, for player.js."""
    rung = rungs.named(stage)
    text, lines = traces.file_of(rung).read_text(encoding="utf-8"), highlighted(rung)
    return (embedded("stage", stage, text)
            + f'<template data-kernel="{stage}">{code(lines, range(1, len(lines) + 1), "kernel")}</template>')


class TracePlayer(SphinxDirective):
    """```{trace-player} 03_kvpipe```: every rung's trace, with its kernel. The player opens with that rung, whose
    trace is the table for who has no JavaScript. With `:at: QK 1` the page carries that trace alone, and it opens where
    that part of that tile begins."""
    required_arguments = 1
    option_spec = {"at": directives.unchanged_required}

    def run(self):
        opening, at = self.arguments[0], self.options.get("at")
        try:
            first = json.loads(traces.file_of(rungs.named(opening)).read_text(encoding="utf-8"))
        except (rungs.RungsError, OSError) as error:
            raise ExtensionError(f"{{trace-player}} {opening}: {error}") from None
        if at and not re.fullmatch(rf"({'|'.join(PARTS)}) \d+( \d+)?", at):
            raise ExtensionError(f"{{trace-player}} {opening}: at is '{at}', wants a part, a tile and perhaps a warp, as 'QK 1'")
        stages = [opening] if at else [file.stem for file in traces.files()]
        where = f' data-at="{at}"' if at else ""
        return [nodes.raw("", f'<div class="player" data-first="{opening}"{where}><p>The player needs JavaScript. Without it, here is the trace of '
                          f'{opening} (n = {first["n"]}, one block) summed up by source line.</p>{table(first)}</div>'
                          + "".join(map(carried, stages)), format="html")]


def held() -> dict:
    """For each operand, the elements that every lane holds, in the order of its registers."""
    code = layouts()
    facts = {name: {**code[name], "perRegister": 1 if name == "C" else 2} for name in "ABC"}
    for name in ("ldmatrix", "ldmatrix-trans"):
        lanes = [[] for _ in range(32)]
        for place, (lane, _) in dealt(name.replace("ldmatrix", "ldmatrix_x4").replace("-", "_")).items():
            lanes[lane].append(place)
        facts[name] = {"rows": 8, "cols": 8, "lanes": [sorted(places) for places in lanes], "perRegister": 2}
    return facts


class BankExplorer(SphinxDirective):
    """```{bank-explorer}```: without JavaScript a table of what the emulator's bank model counts for some mappings."""

    def run(self):
        rows = "".join(f"<tr><td><code>{html.escape(m['expression'])}</code></td><td>{m['pitch']}</td><td>{sum(map(sum, m['reads']))}</td>"
                       f"<td>{sum(m['writes'])}</td><td>{m['lost']}</td><td>{m['behind']}</td></tr>" for m in layouts()["mappings"])
        ideal = layouts()["mappings"][0]
        head = (f"<tr><th>place of a chunk</th><th>chunks from row to row</th><th>wavefronts to read, at best {sum(map(len, ideal['reads']))}</th>"
                f"<th>wavefronts to write, at best {4 * len(ideal['writes'])}</th><th>chunks lost</th><th>chunks behind the tile</th></tr>")
        return [nodes.raw("", '<div class="explorer"><p>To try your own takes JavaScript. Without it, here is what the emulator counts for some.</p>'
                          f'<table><thead>{head}</thead><tbody>{rows}</tbody></table></div>'
                          + embedded("layouts", "held", json.dumps(held(), separators=(",", ":"))), format="html")]


def page_scripts(app, _pagename, _template, context, _doctree) -> None:
    for mark, names in SCRIPTS.items():
        if mark in context.get("body", ""):
            app.add_css_file("player.css")
            for name in names:
                app.add_js_file(name)


def setup(app):
    app.add_directive("trace-player", TracePlayer)
    app.add_directive("bank-explorer", BankExplorer)
    app.connect("html-page-context", page_scripts)
    return {"parallel_read_safe": True}
