"""Kernels of models, gradients, decoding and fp8 stay short: what an earlier rung has spelled out they say (docs/kernels.md and docs/parts.md)."""
from __future__ import annotations

import re
import statistics
import unittest
from pathlib import Path

from tools import rungs
from tools.paths import ROOT

ALL, EACH, MIDDLE, COLUMNS, ROLES = 14200, 420, 330, 120, 26
FIRST, LAST = 40, 84  # up to 38 a kernel is a whole file; up to 84 the kernels have ALL lines together
STAGES = 45  # lines of a stage.cu, on average: what rungs of a part say alike stands in harness/stages/
ONE_ROLE = ("50", "60", "61", "62", "63", "77", "78", "79", "g03")
IN_ONE = ("d01", "d02", "d03")  # a warp copies, and the others do what the whole kernel is about, in its order
MORE = {"58": 29, "59": 31, "m03": 28, "m04": 40}  # of 58 and 59 the machine code changes where their walks become functions


def number_of(name: str) -> int:
    """Of models and gradients; 0 of other parts, whose numbers begin with a letter."""
    number = name.split("_")[0]
    return int(number) if number.isdigit() else 0


def said_in_parts() -> dict[str, list[str]]:
    """The lines of each kernel from 40 on, and of those whose numbers begin with a letter but for the prelude's."""
    return {name: rung.kernel.read_text(encoding="utf-8").splitlines() for name, rung in rungs.by_name().items()
            if number_of(name) >= FIRST or re.match(r"[dfgm]\d\d_", name)}


def too_long(kernels: dict[str, list[str]]) -> list[str]:
    lengths = {name: len(lines) for name, lines in kernels.items()}
    wrong = [f"{name} has {lines} lines, and none may have more than {EACH}: what an earlier rung spells out is a part of "
             "common/words/" for name, lines in lengths.items() if lines > EACH]
    longest = sorted(lengths, key=lengths.get, reverse=True)[:5]
    together = {name: n for name, n in lengths.items() if FIRST <= number_of(name) <= LAST}
    if (total := sum(together.values())) > ALL:
        wrong.append(f"the {len(together)} kernels of {FIRST} to {LAST} have {total} lines together, more than {ALL}; the longest are {', '.join(longest)}")
    for is_numbered in (True, False):  # short ones of decoding make no long ones of models right
        of_part = [n for name, n in lengths.items() if bool(number_of(name)) == is_numbered]
        if of_part and (middle := statistics.median(of_part)) > MIDDLE:
            wrong.append(f"half of the kernels have more than {middle:.0f} lines, and it may be {MIDDLE}; the longest are {', '.join(longest)}")
    return wrong


def told_at_length(stages: dict[str, str]) -> list[str]:
    lengths = {name: text.count("\n") for name, text in stages.items()}
    longest = sorted(lengths, key=lengths.get, reverse=True)[:5]
    return [f"all stage.cu have {sum(lengths.values())} lines together, more than {STAGES} each; the longest are {', '.join(longest)}: what rungs of a "
            "part say alike stands in harness/stages/"] if sum(lengths.values()) > STAGES * len(stages) else []


def too_wide(name: str, lines: list[str]) -> list[str]:
    return [f"{name}:{n} has {len(line)} columns, more than {COLUMNS}" for n, line in enumerate(lines, 1) if len(line) > COLUMNS]


def last_lines(kernel: str) -> int | None:
    """From where a kernel sends its warps to their roles, how many lines it has; none if all its warps do the same."""
    found = None
    for function in re.findall(r"^__global__.*?^}$", kernel, re.M | re.S):
        lines = function.splitlines()
        roles = [n for n, line in enumerate(lines) if re.match(r"  (setmaxnreg_|if \((warp(group)?|threadIdx\.x / 32) (>=|<|==) )", line)]
        if roles:
            found = max(found or 0, len(lines) - roles[0])
    return found


def not_dispatched(kernels: dict[str, list[str]]) -> list[str]:
    """Kernels that do not end in a dispatch of their roles."""
    wrong = []
    for name, lines in kernels.items():
        found = last_lines("\n".join(lines))
        if name.split("_")[0] in IN_ONE:
            continue
        if found is None and not name.startswith("d") and name.split("_")[0] not in ONE_ROLE and any("__global__" in line for line in lines):  # else a part has the kernel
            wrong.append(f"{name} sends no warp to a role: if all do the same, ONE_ROLE says so")
        elif found is not None and found > (most := MORE.get(name.split("_")[0], ROLES)):
            wrong.append(f"{name} has {found} lines from where it sends warps to their roles, more than {most}: a role is a function above")
    return wrong


def unexplained(words: str, page: str) -> list[str]:
    """Functions, kernels, structs and names of types of a header of common/words/ that the page has no word of."""
    code = re.sub(r"//.*", "", words)
    defined = re.findall(r"^(?:__global__ void __launch_bounds__\(.*\) (\w+)\(|(?:[\w:]+[ *&]+)+(\w+)\(|struct (\w+)|using (\w+) =)", code, re.M)
    names = sorted({"".join(found) for found in defined} - {"__launch_bounds__"})
    return [name for name in names if not re.search(rf"\b{name}\b", page)]


def of_no_rung(words: str) -> list[str]:
    """Parts of a header with a comment of their own that names no rung: who spells them out? One without a comment goes on with the part before."""
    comments = re.findall(r"^((?://.*\n)+)(?:(?:template|  requires).*\n)*(?=(?:struct|__\w+__|inline|constexpr|static|auto|void|int|bool|uint32_t|float)\b)(.*)$", words, re.M)
    return [f"{code}: its comment names no rung" for comment, code in comments
            if not re.fullmatch(r"// Grid .*\n", comment) and not re.search(r"\b[dfgm]?\d\d(_\w+)?\b", re.sub(r"[\d.]+ (?:KiB|B)\b", "", comment))]


def shared_in_head(kernel: str) -> tuple[float, bool] | None:
    """How many bytes of shared memory the head of a kernel says that it takes, and whether to the byte."""
    said = re.search(r"Shared: +([\d.]+) KiB(?: \([^)]*\))?(?: and (\d+) B)?", re.sub(r"\n// *", " ", kernel.partition("#pragma")[0]))
    return (float(said[1]) * 1024 + int(said[2] or 0), said[2] is not None) if said else None


class Lengths(unittest.TestCase):
    def test_kernels_are_short(self) -> None:
        kernels = said_in_parts()
        self.assertEqual({name[0] for name in kernels if not number_of(name)}, {"d", "f", "g", "m"})
        self.assertGreater(sum(number_of(name) > 0 for name in kernels), 40)
        self.assertEqual(too_long(kernels), [])

    def test_kernels_end_in_a_dispatch_of_their_roles(self) -> None:
        kernels = said_in_parts()
        self.assertGreater(len(kernels), 80)
        self.assertEqual(not_dispatched(kernels), [])
        for which in ("warp >= WARPS", "threadIdx.x / 32 >= WARPS", "warpgroup == 3"):
            ends = ["__global__ void k() {", f"  if ({which}) {{", *["    load();"] * (ROLES - 2), "  }", "}"]
            self.assertEqual(not_dispatched({"70_short": ends[:2] + ends[3:]}), [])
            self.assertIn(f"70_long has {ROLES + 1} lines", not_dispatched({"70_long": ends})[0])
        self.assertIn("70_none sends no warp", not_dispatched({"70_none": ["__global__ void k() {", "}"]})[0])

    def test_a_walk_returns_what_comes_next(self) -> None:
        kernels = {path.stem if path.stem != "kernel" else path.parent.name: path.read_text(encoding="utf-8")
                   for path in (*(rung.kernel for rung in rungs.by_name().values()), *Path(ROOT, "common", "words").glob("*.cuh"))}
        mutates = re.compile(r"\b(void|bool) next\(")
        self.assertGreater(sum(" next()" in text for text in kernels.values()), 20)
        # In 43 and 99 the machine code would change; up to 38 a kernel is a whole file.
        self.assertEqual([number_of(name) for name, text in kernels.items() if mutates.search(text) and number_of(name) not in range(1, FIRST)], [43, 99])
        self.assertRegex("  __device__ __forceinline__ void next() {", mutates)
        self.assertNotRegex("  __device__ __forceinline__ Queries next() {", mutates)

    def test_stages_say_alike_things_once(self) -> None:
        self.assertEqual(told_at_length({name: (rung.path / "stage.cu").read_text(encoding="utf-8") for name, rung in rungs.by_name().items()}), [])

    def test_no_line_is_wide(self) -> None:
        files = [*(rung.kernel for rung in rungs.by_name().values()), *sorted(Path(ROOT, "common", "words").glob("*.cuh")),
                 ROOT / "common" / "attention.hpp", ROOT / "models" / "reading.cuh", ROOT / "backward" / "reading.cuh"]
        self.assertGreater(len(files), 100)
        self.assertEqual([wrong for path in files
                          for wrong in too_wide(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8").splitlines())], [])

    def test_pages_explain_each_word_and_part(self) -> None:
        pages = {name: Path(ROOT, "docs", f"{name}.md").read_text(encoding="utf-8") for name in ("kernels", "parts")}
        for header in sorted(Path(ROOT, "common", "words").glob("*.cuh")):
            with self.subTest(header.stem):
                page = pages["kernels" if header.stem in ("warp", "site") else "parts"]
                self.assertEqual(unexplained(header.read_text(encoding="utf-8"), page), [])
        words = "struct Seers {\n};\ninline int rows(int n) {\n}\n__global__ void __launch_bounds__(D) plan(int n) {\n}\nusing Seen = Seers;\n"
        self.assertEqual(unexplained(words, "`Seers`"), ["Seen", "plan", "rows"])
        self.assertEqual(unexplained(words, "`Seers`, `Seen`, `plan` and `rows`"), [])

    def test_heads_say_what_is_shared(self) -> None:
        looked = 0
        for name, rung in rungs.by_name().items():
            if said := shared_in_head(rung.kernel.read_text(encoding="utf-8")):
                looked += 1
                self.assertLess(abs(said[0] - rung.variants[0].smem_bytes), 1 if said[1] else 1024, name)
        self.assertGreater(looked, 80)
        self.assertEqual(shared_in_head("// Tile: 64x64.  Shared: 224 KiB and\n//        144 B.\n#pragma once"), (229520, True))

    def test_parts_name_the_rung_that_spells_them_out(self) -> None:
        for header in sorted(Path(ROOT, "common", "words").glob("*.cuh")):
            if header.stem not in ("warp", "site"):
                with self.subTest(header.stem):
                    self.assertEqual(of_no_rung(header.read_text(encoding="utf-8")), [])
        self.assertEqual(of_no_rung("// Rows of 16 B.\ntemplate <class T>\nstruct Rows {\n"), ["struct Rows {: its comment names no rung"])
        self.assertEqual(of_no_rung("// d01_wood. Rows.\nstruct Rows {\n};\ninline int rows() {\n"), [])


if __name__ == "__main__":
    unittest.main()
