"""The rungs, as the built program describes them by `ladder describe --json -`: the one way in which a script learns
which there are, in which order, where they lie, what they start from, and what their stage.cu says.

The program is $LADDER, or ladder in $LADDER_BUILD or build; rungs/rung_all there, where that one is not built.
"""
from __future__ import annotations

import difflib
import functools
import json
import os
import re
import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

from tools.paths import ROOT



class RungsError(Exception):
    """The program cannot be asked, or knows no such rung; the message has the way out."""


class NotBuilt(RungsError):
    """There is no program to ask."""


@dataclass(frozen=True)
class Bound:
    """What ptxas may need for the default variant on one architecture."""

    sm: int
    registers: int
    spill_bytes: int
    reason: str


@dataclass(frozen=True)
class MoreLines:
    """Why a rung changes more lines of its kernel than others may: "new", "port", "rebuilt", "retold" or "other", and the
    reason; empty words where it does not."""

    why: str
    reason: str


@dataclass(frozen=True)
class Variant:
    """One compiled configuration; a rung's first is its default. Zeros and an empty word where there is nothing to
    say."""

    label: str  # unique within the rung: "64x128, 4 warps"
    config: str  # the kernel's template argument: "Config<64, 128, 4>"
    br: int
    bc: int
    warps: int
    m_tiles: int
    smem_bytes: int
    smem_bytes_per_key: int
    min_d: int
    max_d: int
    dtype: str  # of Q, K, V and O: "fp16"
    problems: tuple[str, ...]
    writes_lse: bool
    needs_workspace: bool
    conflict_ways: float


@dataclass(frozen=True)
class Rung:
    name: str  # "08_fragorder"
    number: str  # "08"
    word: str  # "fragorder"
    directory: str  # relative to the repository: "past_fa2/08_fragorder"
    part: str  # the folder of its part, "past_fa2"; empty at the top level
    part_title: str
    order: int
    previous: str  # the name of the rung that it starts from; empty for the first
    role: str  # "line", "branch", "variant", "port", "lost"
    line: str  # the name of the rung of the line that it is, or hangs under
    more_lines: MoreLines
    idea: str
    limit: str
    prediction: str
    min_sm: int
    needs: str
    resources: tuple[Bound, ...]
    variants: tuple[Variant, ...]

    @property
    def default(self) -> Variant:
        return self.variants[0]

    @property
    def path(self) -> Path:
        return root() / self.directory

    @property
    def kernel(self) -> Path:
        return self.path / "kernel.cuh"


@dataclass(frozen=True)
class Part:
    """A folder of rungs; the ladder's top level is one too, without a name."""

    name: str
    title: str
    rungs: tuple[Rung, ...]


def root() -> Path:
    """The repository; tests name another by LADDER_ROOT."""
    return Path(os.environ.get("LADDER_ROOT", ROOT))


def program() -> Path:
    if named := os.environ.get("LADDER"):
        return Path(named)
    build = Path(os.environ.get("LADDER_BUILD", root() / "build"))
    ladder, of_all_rungs = build / "ladder", build / "rungs" / "rung_all"
    return of_all_rungs if of_all_rungs.exists() and not ladder.exists() else ladder


def ask(ladder: Path) -> list[dict]:
    """What the program says of its rungs."""
    command = [str(ladder), "describe", "--json", "-"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise NotBuilt(f"{ladder} cannot be asked which rungs there are: {error.strerror}.\n  Here:  ./ladder build ladder") from None
    if run.returncode != 0:
        raise RungsError(f"{' '.join(command)} exits with {run.returncode}: {run.stderr.strip()}\n  Anew:  ./ladder build ladder")
    try:
        return json.loads(run.stdout)
    except json.JSONDecodeError as error:
        raise RungsError(f"{' '.join(command)} writes no JSON: {error}") from None


def taken(kind: type, said: dict, **others):
    """A `kind` of the fields that it has; describe may say more."""
    return kind(**{field.name: said[field.name] for field in fields(kind) if field.name not in others}, **others)


def rung_of(said: dict) -> Rung:
    bounds = tuple(taken(Bound, bound) for bound in said["resources"])
    variants = tuple(taken(Variant, variant, problems=tuple(variant["problems"])) for variant in said["variants"])
    return taken(Rung, said, name=said["stage"], resources=bounds, variants=variants, more_lines=taken(MoreLines, said["more_lines"]))


@functools.cache
def known() -> tuple[Rung, ...]:
    """All of them, in the ladder's order."""
    ladder = program()
    try:
        found = tuple(rung_of(said) for said in ask(ladder))
    except KeyError as error:
        raise RungsError(f"{ladder} says no {error} of its rungs; it is older than this script.\n  Anew:  ./ladder build ladder") from None
    if not found:
        raise RungsError(f"{ladder} has no rung.\n  Anew:  ./ladder build ladder")
    return found


def by_name() -> dict[str, Rung]:
    return {rung.name: rung for rung in known()}


def names() -> list[str]:
    return [rung.name for rung in known()]


def by_line() -> list[tuple[Rung, tuple[Rung, ...]]]:
    """The rungs of the line, each with those that hang under it."""
    return [(rung, tuple(other for other in known() if other.line == rung.name and other != rung)) for rung in known() if rung.line == rung.name]


def parts() -> list[Part]:
    """In the order of their first rungs."""
    found: dict[str, list[Rung]] = {}
    for rung in known():
        found.setdefault(rung.part, []).append(rung)
    return [Part(name, rungs[0].part_title, tuple(rungs)) for name, rungs in found.items()]


def find(typed: str) -> Rung | None:
    """The rung that 3, 03, kvpipe, 03_kvpipe, p3 or past_fa2/08_fragorder/ names, as the program takes them."""
    name = typed.rstrip("/").lower()
    if re.fullmatch(r"[a-z]?\d", name):
        name = f"{name[:-1]}0{name[-1]}"
    return next((rung for rung in known() if name in (rung.name, rung.number, rung.word, rung.directory)), None)


def no_such(typed: str) -> str:
    """What is said of a name that find() does not know."""
    if number := re.fullmatch(r"([a-z]?)(\d+)", typed):  # by counting, among those with the same letter
        alike = [rung for rung in known() if rung.number.rstrip("0123456789") == number[1]]
        near = [rung.name for rung in sorted(alike, key=lambda rung: abs(int(rung.number[len(number[1]) :]) - int(number[2])))[:3]]
    else:
        called = {each: rung.name for rung in known() for each in (rung.name, rung.word)}
        near = list(dict.fromkeys(called[each] for each in difflib.get_close_matches(typed, called, 3, 0.5)))
    nearest = f" Nearest: {', '.join(near)}." if near else ""
    return f"There is no stage '{typed}'.{nearest}\n  All {len(known())}:  ./ladder list"


def named(typed: str) -> Rung:
    if rung := find(typed):
        return rung
    raise RungsError(no_such(typed))


def chosen(typed: list[str]) -> list[Rung]:
    """The rungs of a command line; all of them where it names none."""
    return [named(word) for word in typed] or list(known())


def split(row: str) -> tuple[str, str]:
    """"02_swizzle[64x32, 2 warps]", as results call a variant, into the rung's part and the variant's; "" for the
    default."""
    name, bracket, variant = row.partition("[")
    return name.rstrip(), bracket + variant


def position(row: str) -> tuple[int, str]:
    """What rows of results are sorted by: the ladder's order, and names that are no rung's behind it."""
    order = {rung.name: rung.order for rung in known()}
    return order.get(split(row)[0], len(order)), row
