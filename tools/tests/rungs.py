"""Rungs for tests that need some rung of the binary, chosen by what `ladder describe` says of them and never by name."""

from __future__ import annotations

import json
import math
import subprocess
from typing import Any, Callable, Iterator

Rung = dict[str, Any]


def default(rung: Rung) -> dict[str, Any]:
    """Its default variant."""
    return rung["variants"][0]


def step(rung: Rung) -> int:
    """What n must be a multiple of."""
    return math.lcm(max(1, default(rung)["br"]), max(1, default(rung)["bc"]))


def prefix(label: str) -> str:
    """Of a variant's label, what names it on the command line: "64x128"."""
    return label.split(",")[0]


class Rungs:
    def __init__(self, ladder: str):
        described = subprocess.run([ladder, "describe", "--json", "-"], capture_output=True, text=True, check=True)
        self.all: list[Rung] = json.loads(described.stdout)
        self.by_name = {rung["stage"]: rung for rung in self.all}

    @property
    def first(self) -> Rung:
        return self.all[0]

    @property
    def length(self) -> int:
        """An n that every rung takes; those with tails take any."""
        return math.lcm(*(step(rung) for rung in self.all if "tails" not in default(rung)["problems"]))

    def find(self, wanted: Callable[[Rung], bool]) -> Rung | None:
        return next(filter(wanted, self.all), None)

    def before(self, rung: Rung) -> Rung | None:
        return self.by_name.get(rung["previous"])

    def pairs(self) -> Iterator[tuple[Rung, Rung]]:
        """Neighbours on tensor cores without bank conflicts, which the emulator runs in no time: (rung before, rung)."""
        for rung in self.all:
            before = self.before(rung)
            if before and all(default(one)["conflict_ways"] == 1 and default(one)["br"] > 0
                              and default(one)["problems"] == ["dense"] for one in (before, rung)):
                yield before, rung

    def ablated(self) -> tuple[Rung, Rung, str]:
        """Neighbours that have two variants in common: (rung before, rung, the label that is not the rung's default)."""
        for rung in self.all:
            before = self.before(rung)
            if not before or default(rung)["br"] == 0:
                continue
            common = [variant["label"] for variant in rung["variants"]
                      if variant["label"] in [other["label"] for other in before["variants"]]]
            if default(rung)["label"] in common and len(common) > 1:
                return before, rung, next(label for label in common if label != default(rung)["label"])
        raise LookupError("no rung has two variants in common with the one that it starts from")
