"""What git knows: whether a commit is there, which came first, and what a file or a rung's kernel said at one. None, or False, where the clone has no history."""
from __future__ import annotations

import functools
import hashlib
import posixpath
import re
import subprocess

from tools.paths import ROOT

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
NAMES = {"31_causal": "31_masked"}  # rungs that were called otherwise, beside those of the prelude in docs/predictions.csv


def git(*arguments: str) -> str | None:
    """What git prints; None where it fails: no git, no repository, a shallow clone."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, errors="replace")
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


@functools.cache
def is_here() -> bool:
    """Whether this is a clone with the whole history; a copy of the files, or a shallow clone, proves nothing."""
    return (git("rev-parse", "--is-shallow-repository") or "").strip() == "false" and git("cat-file", "-e", "38cb1c3^{commit}") is not None


@functools.cache
def has(commit: str) -> bool:
    """Whether a commit is part of what HEAD came from. One that git merely still keeps is not."""
    return bool(commit) and git("merge-base", "--is-ancestor", commit, "HEAD") is not None


@functools.cache
def is_before(first: str, second: str) -> bool:
    """Whether `first` is an ancestor of `second`, and not the same commit."""
    names = [(git("rev-parse", f"{commit}^{{commit}}") or "").strip() for commit in (first, second)]
    return all(names) and names[0] != names[1] and git("merge-base", "--is-ancestor", *names) is not None


@functools.cache
def file(commit: str, path: str) -> str | None:
    """A file at a commit; "" for the working tree."""
    if commit:
        return git("show", f"{commit}:{path}")
    return (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else None


@functools.cache
def files(commit: str) -> tuple[str, ...]:
    """All tracked files at a commit; "" for the working tree."""
    listed = git("ls-tree", "-r", "--name-only", commit) if commit else git("ls-files", "--cached", "--others", "--exclude-standard")
    return tuple((listed or "").split("\n"))


def bare(code: str) -> str:
    """Code without comments and white space's differences, and without what only says what is included."""
    code = re.sub(r"^\s*#\s*(include|pragma once).*$", "", COMMENT.sub(" ", code), flags=re.M)
    return " ".join(code.split())


def definitions(code: str) -> list[str]:
    """The definitions of a header, each as bare text: macros, and what ends at the left of all braces but those of a namespace."""
    whole = COMMENT.sub(" ", code).replace("\\\n", " ")
    macros = [" ".join(line.split()) for line in re.findall(r"^\s*#\s*define .*$", whole, re.M)]
    code = re.sub(r"^\s*#(?!pragma unroll).*$", "", whole, flags=re.M)
    found, piece, depth = [], "", 0
    for token in re.findall(r"[{};]|[^{};]+", re.sub(r"\bnamespace(?:\s+[\w:]+)?\s*\{", "", code)):
        if depth == 0 and token == "}":  # of a namespace
            piece = ""
            continue
        piece += token
        depth += (token == "{") - (token == "}")
        if depth == 0 and token in ("}", ";"):
            found.append(" ".join(piece.split()))
            piece = ""
    return [*macros, *(text for text in found if text != ";")]


def name_of(definition: str) -> str:
    """What a definition defines; "" where that cannot be told."""
    if macro := re.match(r"#\s*define (\w+)", definition):
        return macro[1]
    text = definition
    while at := re.match(r"template\s*<", text):
        depth = 0
        for end, letter in enumerate(text[at.end() - 1:], at.end() - 1):
            depth += (letter == "<") - (letter == ">")
            if not depth:
                break
        text = text[end + 1:].lstrip()
    if found := re.match(r"(?:struct|class|enum(?: class)?|using|concept)\s+(\w+)", text):
        return found[1]
    if found := re.match(r"[^=({]*?(\w+)\s*(?:\[[^\]]*\])?\s*[=(]", text):
        return found[1]
    return ""


@functools.cache
def included(commit: str, path: str) -> frozenset[str]:
    """What nvcc sees of common/ in a file: the headers that it includes, and those that these include. The emulator's are g++'s."""
    found: set[str] = set()
    waiting = [path]
    while waiting:
        here = waiting.pop()
        for name in re.findall(r'^\s*#\s*include "([^"]+)"', file(commit, here) or "", re.M):
            header = name if name.startswith("common/") else posixpath.normpath(posixpath.join(posixpath.dirname(here), name))
            if header.startswith("common/") and "emulator" not in header and header not in found:
                found.add(header)
                waiting.append(header)
    return frozenset(found)


@functools.cache
def defined(commit: str, header: str) -> tuple[tuple[str, str], ...]:
    """Name and bare text of each definition of a header."""
    return tuple((name_of(text), text) for text in definitions(file(commit, header) or ""))


@functools.cache
def kernel_path(commit: str, rung: str) -> str | None:
    """Where a rung's kernel.cuh lay at a commit."""
    names = {rung, *(old for old, new in NAMES.items() if new == rung)}
    return next((path for path in files(commit) if path.endswith("/kernel.cuh") and path.split("/")[-2] in names), None)


@functools.cache
def kernel(commit: str, rung: str) -> str | None:
    """What a rung's kernel says at a commit ("": as it stands), comments and white space aside, with the definitions of common/ that it uses."""
    path = kernel_path(commit, rung)
    text = file(commit, path) if path else None
    if text is None:
        return None
    said, used = bare(text), []
    waiting, known = [said], [each for header in sorted(included(commit, path)) for each in defined(commit, header)]
    while waiting:
        identifiers = set(re.findall(r"\w+", waiting.pop()))
        for name, definition in known:
            if name in identifiers and definition not in used:
                used.append(definition)
                waiting.append(definition)
    return "\n".join([said, *sorted(used)])


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
