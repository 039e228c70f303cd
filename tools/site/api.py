"""The package's functions as their docstrings say them, as Markdown. The text is read and nothing imported, so it takes no library, PyTorch
neither. A docstring has Google's sections: Args, Returns, Raises; of a class Attributes."""
from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass, field

from tools.paths import ROOT

PACKAGE = ROOT / "python" / "flash_ladder"
SECTIONS = ("Args", "Attributes", "Returns", "Raises")
Node = ast.FunctionDef | ast.ClassDef


@dataclass
class Said:
    """A docstring, taken apart."""

    text: str = ""  # before the first section
    sections: dict[str, str] = field(default_factory=dict)

    def entries(self, name: str) -> dict[str, str]:
        """Of a section `name: what it says`, indented where a line goes on."""
        pairs = re.findall(r"^(\*{0,2}\w+): (.*(?:\n[ ]+.*)*)", self.sections.get(name, ""), re.M)
        return {key: " ".join(words.split()) for key, words in pairs}


def said_of(node: Node) -> Said:
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(ast.get_docstring(node) or ""), flags=re.M)
    return Said(parts[0].strip(), {name: inspect.cleandoc(text) for name, text in zip(parts[1::2], parts[2::2])})


def module(name: str) -> ast.Module:
    """`flash_ladder`, or `flash_ladder.ring`."""
    _, _, inner = name.partition(".")
    return ast.parse((PACKAGE / f"{inner or '__init__'}.py").read_text(encoding="utf-8"))


def public(name: str) -> dict[str, Node]:
    """What a module's __all__ names, in its order, wherever in the package it is written."""
    body = module(name).body
    names = next(ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
    found = {node.name: node for node in body if isinstance(node, Node)}
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module:
            inside = {each.name: each for each in module(f"flash_ladder.{node.module}").body if isinstance(each, Node)}
            found |= {alias.name: inside[alias.name] for alias in node.names if alias.name in inside}
    return {each: found[each] for each in names}


def parameters(node: ast.FunctionDef) -> list[str]:
    """Their names, as Args has them."""
    args = node.args
    return ([arg.arg for arg in (*args.posonlyargs, *args.args)] + ([f"*{args.vararg.arg}"] if args.vararg else [])
            + [arg.arg for arg in args.kwonlyargs] + ([f"**{args.kwarg.arg}"] if args.kwarg else []))


def signature(node: Node) -> str:
    if isinstance(node, ast.ClassDef):
        return node.name
    args = ast.parse(f"def {node.name}({ast.unparse(node.args)}): ...").body[0].args
    for arg in (*args.args, args.vararg, *args.kwonlyargs, args.kwarg):
        if arg:
            arg.annotation = None
    return f"{node.name}({ast.unparse(args)})"


def paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def described(node: Node) -> str:
    said = said_of(node)
    lines = [f"### {node.name}", f"```python\n{signature(node)}\n```", paragraphs(said.text)]
    entries = said.entries("Args") or said.entries("Attributes")
    if entries:
        rows = "".join(f"| `{key}` | {words} |\n" for key, words in entries.items())
        lines.append(f"| | |\n|---|---|\n{rows}".rstrip())
    if "Returns" in said.sections:
        lines.append(f"**Returns** {paragraphs(said.sections['Returns'])}")
    if raised := said.entries("Raises"):
        lines.append("**Raises** " + " ".join(f"`{key}`: {words}" for key, words in raised.items()))
    return "\n\n".join(lines) + "\n"


def api(name: str) -> str:
    return "\n" + "\n".join(map(described, public(name).values())) + "\n"
