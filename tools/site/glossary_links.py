"""The first use of a term on a page leads to the glossary: nobody has to mark it. A term that is marked by hand counts.

As a program it prints each link of a built site with its sentence, for a reader who checks the sense:
python3 -m tools.site.glossary_links build/site [PAGE..]"""
from __future__ import annotations

import argparse
import functools
import pickle
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

from tools.paths import DOCS

GLOSSARY = DOCS / "glossary.md"
WHITE = r"\s+"  # a line may end within a term
# Where a link would be in the way, and code, whose words are names.
CLOSED = (nodes.reference, nodes.literal, nodes.literal_block, nodes.title, nodes.term, nodes.math, nodes.math_block, nodes.raw,
          nodes.caption, addnodes.pending_xref)
# The same letters in another sense: the words in which they stand there. A link may be missing; it must not mislead.
OTHER_SENSES = {
    "block": r"\d+x\d+ blocks?|measured blocks?|mixed block|blocks? of code(?:, and each block)?|block rows",
    "head": r"falls heads",
    "ring": r"ring attention",
    "scheduler": r"randomized scheduler",
    "stage": r".*",  # of a ring, or what the program calls a rung
    "tile": r"(?:column|mma|left|right) tiles?",
}
# A term that is an everyday word too: its paragraph must say this.
SPEAKS_OF = {"in turns": r"\b(?:TFLOPS|regime|timed|rounds|power|clock)", "phase": r"\b(?:mbarrier|arriv|parity)"}


@functools.cache
def terms() -> dict[str, re.Pattern]:
    """Longest first, so that a bank conflict is not taken for a bank."""
    text = GLOSSARY.read_text(encoding="utf-8")
    names = re.findall(r"^### (.+)$", text, re.M) or re.findall(r"^(\w.*)$", text.partition("```{glossary}")[2].partition("```")[0], re.M)
    exact = {name: 0 if name.isupper() or name[1:].isdigit() else re.I for name in names}  # SM is no word, sm might be
    longest_first = sorted(names, key=len, reverse=True)
    return {name: re.compile(rf"(?<![\w-]){WHITE.join(map(re.escape, name.split()))}s?(?![\w-])", exact[name]) for name in longest_first}


def anchor(name: str) -> str:
    """Of a heading, as a code host makes it."""
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def with_roles(docname: str, text: str) -> str:
    """A page whose plain links to terms are Sphinx's own, and the glossary, whose terms are headings, as its directive."""
    names = {anchor(name): name for name in terms()}
    text = re.sub(r"\[([^\]]+)\]\((?:[^()\s]*glossary\.md)?#([\w-]+)\)",
                  lambda match: f"{{term}}`{match[1]} <{names[match[2]]}>`" if match[2] in names else match[0], text)
    if docname == "docs/glossary" and "\n### " in text:
        head, *entries = re.split(r"^### ", text, flags=re.M)
        lines = [name + "\n" + textwrap.indent(said.strip(), "  ") for name, _, said in (entry.partition("\n") for entry in entries)]
        text = head + "```{glossary}\n" + "\n\n".join(lines) + "\n```\n"
    return text


def first_use(name: str, text: str, paragraph: Callable[[], str] | None = None) -> re.Match | None:
    """The first place in a text that uses a term in the glossary's sense; `paragraph` gives what the text is part
    of."""
    found = list(terms()[name].finditer(text))
    if found and name in SPEAKS_OF and not re.search(SPEAKS_OF[name], paragraph() if paragraph else text, re.I):
        return None
    if found and name in OTHER_SENSES:
        others = [match.span() for match in re.finditer(OTHER_SENSES[name].replace(" ", WHITE), text, re.I | re.S)]
        found = [match for match in found if not any(start <= match.start() < stop for start, stop in others)]
    return found[0] if found else None


def is_closed(node: nodes.Node) -> bool:
    while node is not None:
        if isinstance(node, CLOSED):
            return True
        node = node.parent
    return False


def paragraph_of(node: nodes.Node) -> nodes.Node:
    while node.parent is not None and not isinstance(node, (nodes.paragraph, nodes.entry)):
        node = node.parent
    return node


def join_lines(doctree: nodes.document) -> None:
    """MyST makes a text of each line, and one of each end of a line; a term may go across them."""
    for parent in {id(text.parent): text.parent for text in doctree.findall(nodes.Text)}.values():
        joined: list[nodes.Node] = []
        for child in parent.children:
            if isinstance(child, nodes.Text) and joined and isinstance(joined[-1], nodes.Text):
                joined[-1] = nodes.Text(joined[-1].astext() + child.astext())
            else:
                joined.append(child)
        if len(joined) < len(parent.children):
            parent.children = []
            parent.extend(joined)


def link(text: nodes.Text, said: str, name: str, match: re.Match) -> list[tuple[nodes.Text, str]]:
    """What is left of the text, before the link and behind it."""
    xref = addnodes.pending_xref("", nodes.inline(match[0], match[0]), refdomain="std", reftype="term", reftarget=name,
                                 refexplicit=True, refwarn=True)
    left = [(nodes.Text(part), part) for part in (said[:match.start()], said[match.end():])]
    (before, _), (behind, _) = left
    text.parent.replace(text, [part for part in (before, xref, behind) if part.astext()])
    return left


def link_first_uses(app, doctree: nodes.document) -> None:
    docname = app.env.docname
    if docname == "docs/glossary":
        return
    join_lines(doctree)
    marked = {node["reftarget"] for node in doctree.findall(addnodes.pending_xref) if node.get("reftype") == "term"}
    opened = [(text, text.astext()) for text in doctree.findall(nodes.Text) if not is_closed(text)]
    page = "\0".join(said for _, said in opened)
    for name, pattern in terms().items():
        if name in marked or not pattern.search(page):
            continue
        for i, (text, said) in enumerate(opened):
            match = first_use(name, said, lambda text=text: paragraph_of(text).astext())
            if match:
                opened[i:i + 1] = link(text, said, name, match)
                break


def links(site: Path) -> list[tuple[str, str, str]]:
    """Page, term and sentence of every link, the linked words in brackets."""
    found = []
    trees = site / ".doctrees"
    for file in sorted(trees.rglob("*.doctree")):
        page = str(file.relative_to(trees).with_suffix(""))
        for xref in pickle.loads(file.read_bytes()).findall(addnodes.pending_xref):
            if xref.get("reftype") != "term" or page == "docs/glossary":
                continue
            linked = set(map(id, xref.findall(nodes.Text)))
            words = "".join(f"[[{text.astext()}]]" if id(text) in linked else text.astext()
                            for text in paragraph_of(xref).findall(nodes.Text))
            words = re.sub(r"\s+", " ", words)
            start, stop = words.index("[["), words.index("]]")
            start = max(words.rfind(". ", 0, start) + 2 if ". " in words[:start] else 0, start - 160)
            end = words.find(". ", stop)
            found.append((page, xref["reftarget"], words[start:min(len(words) if end < 0 else end + 1, stop + 120)]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Each link to the glossary with its sentence.")
    parser.add_argument("site", type=Path, help="a built site, with its .doctrees")
    parser.add_argument("page", nargs="*", help="pages, as docs/gpu or 03_kvpipe/README (default: all)")
    arguments = parser.parse_args()
    found = [link for link in links(arguments.site) if not arguments.page or link[0] in arguments.page]
    for page, term, sentence in found:
        print(textwrap.shorten(f"{page} | {term} | {sentence}", 400))
    return 0 if found else 2


if __name__ == "__main__":
    raise SystemExit(main())
