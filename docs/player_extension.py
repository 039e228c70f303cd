"""The interactive pages: the trace player and the bank and fragment explorer. What they show is put into the page as JSON,
for a browser fetches nothing from a disk."""
from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from kernels import ROOT, code, highlighted, kernel_path

TRACES = ROOT / "docs" / "traces"
FIRST = "03_kvpipe"  # what the player opens with, and what its table tells
SCRIPTS = {"docs/player": ("trace.js", "player.js"), "docs/explorer": ("swizzle.js", "explorer.js")}


def embedded(kind: str, name: str, text: str) -> str:
    """JSON has no other use for "</" than inside a string, where the slash may be escaped."""
    return f'<script type="application/json" class="{kind}" data-name="{name}">' + text.replace("</", "<\\/") + "</script>"


def table(trace: dict) -> str:
    """The trace summed up by source line, for readers without JavaScript and on paper."""
    lines = kernel_path(trace["stage"]).read_text(encoding="utf-8").splitlines()
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


class TracePlayer(SphinxDirective):
    """```{trace-player}```: every trace of docs/traces, with its kernel."""

    def run(self):
        parts = []
        for file in sorted(TRACES.glob("*.json")):
            text = file.read_text(encoding="utf-8")
            stage = json.loads(text)["stage"]
            if not kernel_path(stage).exists():
                raise ExtensionError(f"{file} is of {stage}, which is not there")
            lines = highlighted(stage)
            parts.append(embedded("trace", stage, text))
            parts.append(f'<template data-kernel="{stage}">{code(lines, range(1, len(lines) + 1), "kernel")}</template>')
        first = json.loads((TRACES / f"{FIRST}.json").read_text(encoding="utf-8"))
        return [nodes.raw("", f'<div class="player" data-first="{FIRST}"><p>The player needs JavaScript. Without it, here is the trace of '
                          f'{FIRST} (n = {first["n"]}, one block) summed up by source line.</p>{table(first)}</div>'
                          + "".join(parts), format="html")]


def page_scripts(app, pagename, _template, _context, _doctree) -> None:
    for name in SCRIPTS.get(pagename, ()):
        app.add_js_file(name)
        app.add_css_file("player.css")


def setup(app):
    app.add_directive("trace-player", TracePlayer)
    app.connect("html-page-context", page_scripts)
    return {"parallel_read_safe": True}
