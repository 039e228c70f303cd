"""One program that holds many mutants: each changed part stands beside the original, and a number chosen at run time says which
one is executed. What has no alternative at run time (constants, constexpr functions) is a program of its own, in a namespace
of its own, so that a dozen of them are compiled in one file.
"""
from __future__ import annotations

import re
from collections import defaultdict

from tools.mutants.operators import apply, Mutant, Unit, without_comments

VARIABLE = "LADDER_MUTANT"  # the number, in the environment; unset or 0: the original
PROLOGUE = f"""#ifndef LADDER_MUTANTS_PROLOGUE
#define LADDER_MUTANTS_PROLOGUE
#include <cstdlib>
#include <cstring>
#include <type_traits>
namespace {{
const int mutant_number = std::getenv("{VARIABLE}") ? std::atoi(std::getenv("{VARIABLE}")) : 0;
#define MUTANT(number) (mutant_number == (number))
#define MUTANT_AMONG(first, count) (static_cast<unsigned>(mutant_number - (first)) < (count))
// What an uninitialised variable holds in this build.
template <class T>
[[gnu::noinline]] T unwritten() {{
  T value;
  return value;
}}
}}
#endif
"""
MARK = re.compile(r"/\*mutant (\d+)\*/")


def number(mutants: list[Mutant], first: int = 1) -> list[Mutant]:
    """In the order of their units, those compiled apart last, so that the mutants of a unit are neighbours."""
    ordered = sorted(mutants, key=lambda mutant: (mutant.unit.kind == "apart", mutant.path, mutant.unit.start, mutant.unit.end,
                                                  mutant.unit.kind))
    for i, mutant in enumerate(ordered):
        mutant.number = first + i
    return ordered


class Schema:
    """The text with all of the mutants in it; none of them is `apart`."""

    def __init__(self, text: str, mutants: list[Mutant]):
        self.text = text
        self.insertions: dict[int, list[str]] = defaultdict(list)
        units: dict[tuple[int, int, str], list[Mutant]] = defaultdict(list)
        for mutant in mutants:
            units[mutant.unit.start, mutant.unit.end, mutant.unit.kind].append(mutant)
        self.units = sorted(units.items(), key=lambda item: (item[0][0], -item[0][1]))
        self._collect_insertions()

    def _collect_insertions(self) -> None:
        for (start, end, kind), mutants in self.units:
            for mutant in mutants:
                for edit in mutant.edits:
                    if edit.start > end:  # a statement that is moved behind another one
                        self.insertions[edit.start].append(self._line(mutant, f"if (MUTANT({mutant.number})) {{{edit.text}}}"))
                if kind == "initialiser":
                    unit = mutant.unit
                    self.insertions[unit.behind].append(self._line(
                        mutant, f"if (!MUTANT({mutant.number})) std::memset(&{unit.name}, 0, sizeof({unit.name}));"))

    def render(self) -> str:
        return self._render(0, len(self.text), 0)[0]

    @staticmethod
    def _line(mutant: Mutant, code: str) -> str:
        """On a line of its own: the compiler's word on it is about this mutant alone."""
        return f"\n{code} /*mutant {mutant.number}*/\n"

    def _plain(self, start: int, end: int, insertions: dict[int, list[str]]) -> str:
        parts, position = [], start
        for place in sorted(place for place in insertions if start < place <= end):
            parts.append(self.text[position:place])
            parts += insertions.pop(place)
            position = place
        return "".join(parts) + self.text[position:end]

    def _render(self, start: int, end: int, i: int) -> tuple[str, int]:
        """text[start:end] with the units from i on that lie in it; and the first unit that does not."""
        parts, position = [], start
        while i < len(self.units) and self.units[i][0][0] < end:
            (unit_start, unit_end, kind), mutants = self.units[i]
            parts.append(self._plain(position, unit_start, self.insertions))
            inner, i = self._render(unit_start, unit_end, i + 1)
            parts.append(self._unit(unit_start, unit_end, kind, mutants, inner))
            position = unit_end
            for late in self.insertions.pop(position, []):
                parts.append(late)
        parts.append(self._plain(position, end, self.insertions))
        return "".join(parts), i

    def _unit(self, start: int, end: int, kind: str, mutants: list[Mutant], inner: str) -> str:
        first, count = mutants[0].number, len(mutants)
        if kind == "initialiser":
            return ""
        arms = []
        for mutant in mutants:
            edits = [edit for edit in mutant.edits if edit.start <= end]
            parts, position = [], start
            for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
                parts += [self.text[position:edit.start], edit.text]
                position = max(position, edit.end)
            arms.append((mutant, without_comments("".join(parts) + self.text[position:end])))
        if kind == "statement":
            chosen = "else ".join(self._line(mutant, f"if (MUTANT({mutant.number})) {{ {arm} }}") for mutant, arm in arms)
            return f"{{ if (MUTANT_AMONG({first}, {count})) {{{chosen}}} else {{ {inner} }} }}"
        original = without_comments(self.text[start:end])
        if kind == "step":
            chosen = "".join(self._line(mutant, f"MUTANT({mutant.number}) ? void({arm}) :") for mutant, arm in arms)
            return f"(MUTANT_AMONG({first}, {count}) ? ({chosen} void()) : void({inner}))"
        # Of one type, but for what is unset: that is of its variable's type, and 0 of a double's has another.
        cast = f"static_cast<std::decay_t<decltype({original})>>"
        arms = [(mutant, f"({arm})" if mutant.operator == "uninitialised" else f"{cast}({arm})") for mutant, arm in arms]
        chosen = "".join(self._line(mutant, f"MUTANT({mutant.number}) ? {arm} :") for mutant, arm in arms[:-1])
        chosen += self._line(*arms[-1])
        return f"(MUTANT_AMONG({first}, {count}) ? ({chosen}) : ({inner}))"


def lines_of(source: str) -> dict[int, int]:
    """Which mutant each line of a generated file belongs to."""
    found = {}
    for i, line in enumerate(source.split("\n"), 1):
        match = MARK.search(line)
        if match:
            found[i] = int(match.group(1))
    return found


def split_includes(text: str, local: set[str]) -> tuple[list[str], str]:
    """The #include lines, but those of `local` files, and the text without them, nothing moved to another line."""
    includes, lines = [], []
    for line in text.split("\n"):
        match = re.match(r'\s*#\s*include\s+(["<])([^">]+)[">]', line)
        if match:
            if not (match.group(1) == '"' and match.group(2) in local):
                includes.append(line.strip())
            lines.append("")
        else:
            lines.append("" if re.match(r"\s*#\s*pragma\s+once", line) else line)
    return includes, "\n".join(lines)


def apart(text: str, mutant: Mutant) -> str:
    return apply(text, mutant.edits)


__all__ = ["PROLOGUE", "Schema", "Unit", "VARIABLE", "apart", "lines_of", "number", "split_includes"]
