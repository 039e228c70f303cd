"""Every page reads as it should where the repository is hosted: rendered by a CommonMark library with GFM's tables it shows no role,
no empty block, no formula, and no link of it leads nowhere."""
from __future__ import annotations

import functools
import re
import subprocess
import sys
import unittest
from pathlib import Path
from urllib.parse import unquote

from tools.paths import ROOT

try:
    from markdown_it import MarkdownIt
except ModuleNotFoundError:
    print("The pages are not rendered; that takes python3-markdown-it, which ./ladder docs installs")
    sys.exit(77)

MARKDOWN = MarkdownIt("commonmark").enable("table")


@functools.cache
def tokens(page: Path) -> list:
    found = []
    for token in MARKDOWN.parse(page.read_text(encoding="utf-8")):
        found += [token, *(token.children or [])]
    return found


@functools.cache
def anchors(page: Path) -> set[str]:
    """Of headings as code hosts name them, and those that stand in the page as HTML."""
    found: set[str] = set()
    stream = tokens(page)
    for at, token in enumerate(stream):
        if token.type == "heading_open":
            words = "".join(child.content for child in stream[at + 1].children if child.type in ("text", "code_inline"))
            name = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.add(next(each for each in (name, *(f"{name}-{i}" for i in range(1, 99))) if each not in found))
        if token.type in ("html_block", "html_inline"):
            found |= set(re.findall(r'\b(?:id|name)="([^"]+)"', token.content))
    return found


def pages() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in listed.split("\0") if name]


class Pages(unittest.TestCase):
    def test_they_read_as_they_stand(self) -> None:
        for page in pages():
            with self.subTest(str(page.relative_to(ROOT))):
                for token, after in zip(tokens(page), [*tokens(page)[1:], None]):
                    if token.type == "text":
                        self.assertFalse(after and after.type == "code_inline" and re.search(r"\{[a-z-]+\}$", token.content), token.content)
                        self.assertNotRegex(token.content, r"<!--|-->")
                    if token.type == "fence":
                        self.assertNotRegex(token.info, r"^\{")
                        self.assertTrue(token.content.strip(), "an empty block of code")
                    if token.type == "html_block":  # nothing in it is Markdown to a reader
                        self.assertNotRegex(token.content, r"\A\s*<!--=")
                        self.assertNotRegex(re.sub(r"<!--.*?-->", "", token.content, flags=re.S), r"\[[^\]]+\]\(|\*\*|`")
                    if token.type == "code_inline":
                        self.assertNotIn("<!--=", token.content)

    def test_no_link_leads_nowhere(self) -> None:
        for page in pages():
            with self.subTest(str(page.relative_to(ROOT))):
                for token in tokens(page):
                    address = token.attrs.get("href", "") or token.attrs.get("src", "")
                    if not address or re.match(r"[a-z]+:", address):
                        continue
                    name, _, anchor = unquote(address).partition("#")
                    target = (page.parent / name).resolve() if name else page
                    self.assertTrue(target.exists(), address)
                    readme = target / "README.md" if target.is_dir() else target
                    if anchor and readme.suffix == ".md":
                        self.assertIn(anchor, anchors(readme), address)


if __name__ == "__main__":
    unittest.main()
