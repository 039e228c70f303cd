"""The first use of a term on a page leads to the glossary: nobody has to mark it. A term that is marked by hand counts."""
from __future__ import annotations

import functools
import re

from docutils import nodes
from sphinx import addnodes

from paths import DOCS

GLOSSARY = DOCS / "glossary.md"
# Where a link would be in the way, and code, whose words are names.
CLOSED = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.term, nodes.math, nodes.math_block, nodes.raw,
          nodes.caption, addnodes.pending_xref)


@functools.cache
def terms() -> dict[str, re.Pattern]:
    """Longest first, so that a bank conflict is not taken for a bank."""
    text = GLOSSARY.read_text(encoding="utf-8").partition("```{glossary}")[2]
    names = re.findall(r"^(\w.*)$", text.partition("```")[0], re.M)
    exact = {name: 0 if name.isupper() or name[1:].isdigit() else re.I for name in names}  # SM is no word, sm might be
    return {name: re.compile(rf"(?<![\w-]){re.escape(name)}s?(?![\w-])", exact[name]) for name in sorted(names, key=len, reverse=True)}


def is_closed(node: nodes.Node) -> bool:
    while node is not None:
        if isinstance(node, CLOSED):
            return True
        node = node.parent
    return False


def link(text: nodes.Text, name: str, match: re.Match) -> None:
    said = text.astext()
    xref = addnodes.pending_xref("", nodes.inline(match[0], match[0]), refdomain="std", reftype="term", reftarget=name,
                                 refexplicit=True, refwarn=True)
    parts = [nodes.Text(said[:match.start()]), xref, nodes.Text(said[match.end():])]
    text.parent.replace(text, [part for part in parts if part.astext()])


def link_first_uses(app, doctree: nodes.document) -> None:
    docname = app.env.docname
    if docname == "docs/glossary":
        return
    marked = {node["reftarget"] for node in doctree.findall(addnodes.pending_xref) if node.get("reftype") == "term"}
    for name, pattern in terms().items():
        if name in marked:
            continue
        for text in list(doctree.findall(nodes.Text)):
            match = pattern.search(text.astext())
            if match and not is_closed(text):
                link(text, name, match)
                break
