"""A program that describes an invented ladder, in place of the built one: for tests of scripts, which must hold for any rungs.

The invented rungs are those of fixtures/results.csv: a line of eight, and in the part "side" a branch of which nothing is measured.
"""
from __future__ import annotations

import json
import sys
from pathlib import Path

WORDS = ("stone", "wood", "brick", "iron", "steel", "glass", "chrome", "gold")
LINE = [f"{i:02}_{word}" for i, word in enumerate(WORDS)]
BRANCH = "p01_clay"
BOUNDS = [{"sm": 80, "registers": 200, "spill_bytes": 0, "reason": ""}, {"sm": 90, "registers": 168, "spill_bytes": 16, "reason": ""}]


def variant(label: str = "64x32, 2 warps", config: str = "Config<64, 32, 2>", **said) -> dict:
    return {"label": label, "config": config, "br": 64, "bc": 32, "warps": 2, "m_tiles": 2, "smem_bytes": 4096, "smem_bytes_per_key": 0,
            "min_d": 128, "max_d": 128, "dtype": "fp16", "problems": ["dense"], "writes_lse": False, "needs_workspace": False,
            "conflict_ways": 1.0, **said}


def rung(name: str, previous: str = "", part: str = "", **said) -> dict:
    number, _, word = name.partition("_")
    return {"stage": name, "number": number, "word": word, "directory": f"{part}/{name}" if part else name, "part": part,
            "part_title": f"The part {part}" if part else "", "order": 0, "previous": previous,
            "role": "line", "more_lines": {"why": "", "reason": ""}, "idea": f"The idea of {word}.",
            "limit": "", "prediction": "", "min_sm": 80, "needs": "", "resources": BOUNDS, "variants": [variant()], **said}


def in_order(rungs: list[dict]) -> list[dict]:
    by_name = {each["stage"]: each for each in rungs}

    def of_line(each: dict) -> str:
        before = by_name.get(each["previous"])
        return each["stage"] if each["role"] == "line" or before is None else of_line(before)

    return [{**each, "order": i, "line": of_line(each)} for i, each in enumerate(rungs)]


def invented() -> list[dict]:
    line = [rung(name, before) for name, before in zip(LINE, ["", *LINE])]
    return in_order([line[0], rung(BRANCH, LINE[0], "side", role="branch"), *line[1:]])


def write(path: Path, rungs: list[dict] | None = None, rest: str = "sys.exit(2)\n") -> Path:
    """The program. What it does beside describing is `rest`, in Python, with the command line in `words`."""
    said = json.dumps(in_order(rungs) if rungs is not None else invented())
    path.write_text(f"#!{sys.executable}\nimport json, os, sys\nwords = sys.argv[1:]\nif words[0] == 'describe':\n"
                    f"    print({said!r})\n    sys.exit()\n{rest}", encoding="utf-8")
    path.chmod(0o755)
    return path
