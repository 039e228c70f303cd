"""What an exercise is: a folder of course/exercises with a task.md and an exercise.toml, cut from a rung's kernel.cuh.

Nothing is written twice. An exercise says which lines of the rung it takes away and what stands there to begin with; the solution
is the rung. Each such edit is anchored to whole lines that the kernel has exactly once, so a rung that has changed is noticed.
What the keys mean: course/README.md.
"""
from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from harness import rungs  # noqa: E402

FOLDER = ROOT / "course" / "exercises"
KINDS = ("fill", "hunt", "predict")
ABOUT_COUNTS = ("counts_differ", "conflicts_differ")  # right and slow; all others are wrong
BEGIN, END = "// ---- your part:", "// ---- end of your part"


class CourseError(Exception):
    """What stops an exercise; the message has the way out."""


@dataclass(frozen=True)
class Verdict:
    passed: bool
    reason: str  # a kind of failure of `ladder check`, or: passed, outside, too_many_lines, not_a_kernel, unanswered, wrong_number
    text: str


def replace_once(text: str, old: str, new: str, what: str) -> str:
    """Whole lines of the text, which must be there exactly once."""
    if not old.endswith("\n") or text.count("\n" + old) != 1:
        raise CourseError(f"{what}: these lines stand {text.count(chr(10) + old)} times in the kernel, not once:\n{old}")
    return text.replace("\n" + old, "\n" + new, 1)


def indent_of(lines: str) -> str:
    first = next(line for line in lines.splitlines() if line.strip() and not line.startswith("#"))
    return first[: len(first) - len(first.lstrip())]


def normal(text: str) -> list[str]:
    """Lines without what an editor may change by itself."""
    return [line.rstrip() for line in text.replace("\r\n", "\n").rstrip().split("\n")]


def run_ladder(*arguments: str, limit_s: float = 600) -> subprocess.CompletedProcess[str]:
    program = rungs.program()
    try:
        return subprocess.run([str(program), *arguments], capture_output=True, text=True, errors="replace", timeout=limit_s,
                              stdin=subprocess.DEVNULL, cwd=ROOT)
    except subprocess.TimeoutExpired:
        raise CourseError(f"It had not ended after {limit_s:.0f} s.") from None


class Exercise:
    def __init__(self, folder: Path):
        self.name = folder.name
        self.folder = folder
        try:
            self.data = tomllib.loads((folder / "exercise.toml").read_text())
            self.task = (folder / "task.md").read_text()
            self.title: str = self.data["title"]
            self.kind: str = self.data["kind"]
            self.rung: str = self.data["rung"]
            self.minutes: int = self.data["minutes"]
            self.hints: list[str] = [hint.strip() for hint in self.data["hints"]]
        except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
            raise CourseError(f"{folder}: {type(error).__name__}: {error}") from None
        if self.kind not in KINDS:
            raise CourseError(f"{folder}: there is no kind '{self.kind}', only {', '.join(KINDS)}.")

    @property
    def file_name(self) -> str:
        return "answers.txt" if self.kind == "predict" else "kernel.cuh"

    # ---- what a student begins with, and what is right ---------------------------------------------------------------
    def kernel(self) -> str:
        return (rungs.named(self.rung).path / "kernel.cuh").read_text()

    def choose(self, key: str, seed: str) -> int:
        """Which of a list's entries this student has: the same one each time, and not a neighbour's."""
        digest = hashlib.sha256(f"{seed}/{self.name}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % len(self.data[key])

    def _surroundings(self) -> str:
        text = self.kernel()
        if self.kind == "hunt":  # under a neutral name: the rung's header says what it is
            lines = text.split("\n")
            first = next(i for i, line in enumerate(lines) if not line.startswith("//"))
            text = "\n".join(["// One thing is wrong with this kernel.", *lines[first:]])
        for edit in self.data.get("hide", []):
            text = replace_once(text, edit["rung"], edit.get("start", ""), f"{self.name}, hide")
        return text

    def _with_blanks(self, key: str) -> str:
        text = self._surroundings()
        for blank in self.data["blank"]:
            indent = indent_of(blank["rung"])
            marked = f"{indent}{BEGIN} {blank['what']}\n{blank[key]}{indent}{END}\n"
            text = replace_once(text, blank["rung"], marked, f"{self.name}, blank")
        return text

    def skeleton(self, seed: str = "") -> str:
        if self.kind == "fill":
            return self._with_blanks("start")
        if self.kind == "hunt":
            return self.with_bug(self.choose("bug", seed))
        shape = self.shape(seed)
        words = ", ".join(f"{key} = {value}" for key, value in shape.items())
        parts = [f"# {self.title}: {self.rung} at {words}, d = 128.\n"
                 "# A number or a product stands behind each =, as in 8 * 512 * 128. What follows a # is yours."]
        parts += [f"# {question['ask'].strip()}\n{question['name']} = ?" for question in self.data["question"]]
        return "\n\n".join(parts) + "\n"

    def with_bug(self, index: int) -> str:
        bug = self.data["bug"][index]
        return replace_once(self._surroundings(), bug["rung"], bug["start"], f"{self.name}, bug {index + 1}")

    def solution(self, seed: str = "") -> str:
        if self.kind == "fill":
            return self._with_blanks("rung")
        if self.kind == "hunt":
            return self._surroundings()
        truth = self.truth(seed)
        text = self.skeleton(seed)
        for question in self.data["question"]:
            name = question["name"]
            text = text.replace(f"{name} = ?", f"{name} = {truth[name]}  # {question['because'].strip()}")
        return text

    def loopholes(self) -> list[tuple[dict, str, str]]:
        """Ways to the right numbers that are not the exercise's: what each is, with the file that it makes, and of which."""
        found = []
        for hole in self.data.get("loophole", []):
            given = self.with_bug(hole.get("bug", 1) - 1) if self.kind == "hunt" else self.skeleton()
            base = given if "bug" in hole else self.solution()
            found.append((hole, replace_once(base, hole["rung"], hole["start"], f"{self.name}, loophole"), given))
        return found

    # ---- predict -----------------------------------------------------------------------------------------------------
    def shape(self, seed: str) -> dict[str, int]:
        return self.data["shapes"][self.choose("shapes", seed)]

    def truth(self, seed: str) -> dict[str, int]:
        """What the emulator counts."""
        flags = [word for key, value in self.shape(seed).items() for word in (f"--{key}", str(value))]
        ran = run_ladder("explain", self.rung, *flags, "--json", "-")
        if ran.returncode != 0:
            raise CourseError(f"The ladder could not count {self.rung}:\n{ran.stderr.strip()}")
        counters = json.loads(ran.stdout)[0]["counters"]
        return {question["name"]: counters[question["counter"]] for question in self.data["question"]}

    # ---- judging -----------------------------------------------------------------------------------------------------
    def judge(self, text: str, skeleton: str, seed: str = "", shown_as: str = "kernel.cuh") -> Verdict:
        """`skeleton`: what the student began with."""
        if self.kind == "predict":
            return self._judge_answers(text, seed)
        outside = self._outside(text, skeleton)
        return outside or self._try(text, shown_as)

    def _outside(self, text: str, skeleton: str) -> Verdict | None:
        """What was changed where it may not be, for then the rung's numbers would say nothing."""
        mine, given = normal(text), normal(skeleton)
        if self.kind == "hunt":
            most = self.data["most_lines"]
            changed = changed_lines(given, mine)
            if changed <= most:
                return None
            return Verdict(False, "too_many_lines", f"You have changed {changed} lines. What is wrong takes at most {most}: "
                                                    "find the cause, and leave all else as it was.")
        mine_fixed, given_fixed = outside_of_blanks(mine), outside_of_blanks(given)
        if mine_fixed is None or len(mine_fixed) != len(given_fixed):
            return Verdict(False, "outside", f"The lines that begin and end your parts are not as they were:\n  {BEGIN} ..\n"
                                             f"  {END}\n`./ladder learn reset` keeps your file as kernel.cuh.old and begins anew.")
        for (number, line), (_, expected) in zip(sum(mine_fixed, []), sum(given_fixed, []), strict=False):
            if line != expected:
                return Verdict(False, "outside", f"Line {number} is outside of your parts, and was changed:\n  {line.strip()}\n"
                                                 f"It was:\n  {expected.strip()}")
        if [len(part) for part in mine_fixed] != [len(part) for part in given_fixed]:
            return Verdict(False, "outside", "Lines were added or removed outside of your parts. "
                                             "`./ladder learn reset` keeps your file as kernel.cuh.old and begins anew.")
        return None

    def _try(self, text: str, shown_as: str) -> Verdict:
        with tempfile.TemporaryDirectory() as folder:
            file, report = Path(folder) / "kernel.cuh", Path(folder) / "report.json"
            file.write_text(text)
            ran = run_ladder("try", str(file), "--like", self.rung, "--json", str(report))
            said = (ran.stdout + ran.stderr).replace(str(file), shown_as).replace(f"{Path(folder).name}/kernel.cuh", shown_as)
            if ran.returncode == 0:
                return Verdict(True, "passed", said.split("\nBytes asked for at each level")[0])
            if ran.returncode not in (0, 1):
                raise CourseError(said.strip())
            if not report.is_file():
                return Verdict(False, "not_a_kernel", said)
            rows = json.loads(report.read_text())
            # The cause first; the table above it says no more.
            said = said[max(said.find(f"\n{self.rung} on the emulator:"), 0):].lstrip()
            kinds = [failure["kind"] for row in rows for failure in row["failures"]]
            return Verdict(False, next((kind for kind in kinds if kind not in ABOUT_COUNTS), kinds[0]), said)

    def _judge_answers(self, text: str, seed: str) -> Verdict:
        given: dict[str, int] = {}
        names = [question["name"] for question in self.data["question"]]
        for number, line in enumerate(normal(text), 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            name, _, value = (part.strip() for part in line.partition("="))
            if name not in names:
                return Verdict(False, "unanswered", f"answers.txt:{number}: there is no question '{name}', only {', '.join(names)}.")
            if value in ("", "?"):
                continue
            try:
                given[name] = product(value)
            except ValueError:
                return Verdict(False, "unanswered", f"answers.txt:{number}: '{value}' is no number, and no product of numbers.")
        open_questions = [name for name in names if name not in given]
        if open_questions:
            return Verdict(False, "unanswered", f"Not answered yet: {', '.join(open_questions)}.")
        truth = self.truth(seed)
        lines = [f"{name}: {given[name]:,} is {'right' if given[name] == truth[name] else 'not what the emulator counts'}" for name in names]
        passed = given == truth
        return Verdict(passed, "passed" if passed else "wrong_number", "\n".join(lines))


def changed_lines(before: list[str], after: list[str]) -> int:
    """Lines of the one that are not in the other, or the other way round, whichever are more."""
    import difflib

    removed = added = 0
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            removed, added = removed + i2 - i1, added + j2 - j1
    return max(removed, added)


def outside_of_blanks(lines: list[str]) -> list[list[tuple[int, str]]] | None:
    """The numbered lines before, between and after the blanks, marks included; None if the marks do not pair."""
    parts: list[list[tuple[int, str]]] = [[]]
    inside = False
    for number, line in enumerate(lines, 1):
        begins, ends = line.lstrip().startswith(BEGIN), line.lstrip().startswith(END)
        if (begins and inside) or (ends and not inside):
            return None
        if ends:
            parts.append([])
        if not inside or ends:
            parts[-1].append((number, line))
        inside = begins or (inside and not ends)
    return None if inside else parts


def blanks_of(text: str) -> list[str] | None:
    """What stands in the blanks; None if the marks do not pair."""
    found: list[str] = []
    inside = False
    for line in text.replace("\r\n", "\n").split("\n"):
        begins, ends = line.lstrip().startswith(BEGIN), line.lstrip().startswith(END)
        if (begins and inside) or (ends and not inside):
            return None
        if begins:
            found.append("")
        elif inside and not ends:
            found[-1] += line + "\n"
        inside = begins or (inside and not ends)
    return None if inside else found


def with_blanks(skeleton: str, blanks: list[str]) -> str:
    """The skeleton with this in its blanks."""
    out, inside, at = [], False, 0
    for line in skeleton.split("\n"):
        begins, ends = line.lstrip().startswith(BEGIN), line.lstrip().startswith(END)
        if not inside or ends:
            out.append(line)
        if begins:
            out += blanks[at].split("\n")[:-1]
            at += 1
        inside = begins or (inside and not ends)
    return "\n".join(out)


def product(text: str) -> int:
    """'8 * 512' or '64 * (3 + 1)': whole numbers, + - * / and parentheses."""
    import ast

    def value(node: ast.AST) -> int:
        match node:
            case ast.Expression(body):
                return value(body)
            case ast.Constant(int(number)) if type(number) is int and number < 2**63:
                return number
            case ast.BinOp(left, ast.Add(), right):
                return value(left) + value(right)
            case ast.BinOp(left, ast.Sub(), right):
                return value(left) - value(right)
            case ast.BinOp(left, ast.Mult(), right):
                return value(left) * value(right)
            case ast.BinOp(left, ast.Div() | ast.FloorDiv(), right) if (divisor := value(right)) and value(left) % divisor == 0:
                return value(left) // divisor
        raise ValueError(text)

    if len(text) > 200:
        raise ValueError(text)
    try:
        return value(ast.parse(text.replace(",", ""), mode="eval"))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(text) from None


def all_exercises() -> list[Exercise]:
    """In the order of their rungs, and those of one rung by their names: 02a_.. before 02b_.."""
    found = [Exercise(folder) for folder in sorted(FOLDER.iterdir()) if (folder / "exercise.toml").is_file()]
    return sorted(found, key=lambda exercise: (rungs.named(exercise.rung).order, exercise.name))
