"""What an exercise is: a folder of course/exercises with a task.md and an exercise.toml, cut from a rung's kernel.cuh.

Nothing is written twice. An exercise says which lines of the rung it takes away and what stands there to begin with; the solution
is the rung. Each such edit is anchored to whole lines that the kernel has exactly once, so a rung that has changed is noticed.
What the keys mean: course/README.md.
"""
from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

DONE, FAILED, USAGE, CANNOT_RUN_HERE, INTERRUPTED = 0, 1, 2, 77, 130  # exit codes, as the ladder has them
from tools import results, rungs
from tools.course import cost
from tools.paths import ROOT

FOLDER = ROOT / "course" / "exercises"
KINDS = ("fill", "hunt", "predict", "climb", "open")
FREE = ("climb", "open")  # any kernel may do
ABOUT_COUNTS = ("counts_differ", "conflicts_differ")  # right and slow; all others are wrong
BYTE_ORDER_MARK = "\ufeff"  # an editor on Windows may put it before the first character
BEGIN, END = "// ---- your part:", "// ---- end of your part"


class CourseError(Exception):
    """What stops an exercise; the message has the way out."""


class Usage(CourseError):
    """What was typed cannot be done."""


class NotHere(CourseError):
    """This machine has not what it takes."""


@dataclass(frozen=True)
class Verdict:
    passed: bool
    reason: str  # a kind of failure of `ladder check`, or: passed, outside, too_many_lines, not_a_kernel, unanswered, wrong_number,
    #              above_target
    text: str
    cost: cost.Cost | None = None  # of a right kernel, in an open exercise


def replace_once(text: str, old: str, new: str, what: str) -> str:
    """Whole lines of the text, which must be there exactly once."""
    if not old.endswith("\n") or text.count("\n" + old) != 1:
        raise CourseError(f"{what}: these lines stand {text.count(chr(10) + old)} times in the kernel, not once:\n{old}"
                          "Has the rung itself been edited here?\n  What is different:  git diff -- '*/kernel.cuh'\n"
                          "  As it was:          git restore -- '*/kernel.cuh'")
    return text.replace("\n" + old, "\n" + new, 1)


def indent_of(lines: str) -> str:
    first = next(line for line in lines.splitlines() if line.strip() and not line.startswith("#"))
    return first[: len(first) - len(first.lstrip())]


def normal(text: str) -> list[str]:
    """Lines without what an editor may change by itself."""
    return [line.rstrip() for line in text.removeprefix(BYTE_ORDER_MARK).replace("\r\n", "\n").rstrip().split("\n")]


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
        except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError) as error:
            raise CourseError(f"{within(folder)}: {type(error).__name__}: {error}\n"
                              f"  As it was:  git restore {within(folder)}") from None
        if self.kind not in KINDS:
            raise CourseError(f"{folder}: there is no kind '{self.kind}', only {', '.join(KINDS)}.")

    @property
    def file_name(self) -> str:
        return "answers.txt" if self.kind == "predict" else "kernel.cuh"

    # ---- what a student begins with, and what is right ---------------------------------------------------------------
    @property
    def free(self) -> bool:
        return self.kind in FREE

    def kernel(self) -> str:
        return kernel_of(self.rung)

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
        return self.cured(text)

    def cured(self, text: str) -> str:
        """Of a rung that has the fault itself, the kernel that has not."""
        for edit in self.data.get("cure", []):
            text = replace_once(text, edit["rung"], edit["start"], f"{self.name}, cure")
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
        if self.free:
            text = kernel_of(self.data["from"])
            for edit in self.data.get("fit", []):
                text = replace_once(text, edit["rung"], edit["start"], f"{self.name}, fit")
            return f"// All of this file is yours. It begins as {self.data['from']}, and takes the place of {self.rung}.\n{text}"
        parts = [f"# {self.title}: {self.words(self.shape(seed))}.\n"
                 "# Behind each = write a number, or how to compute it: 8 * 512 * 128 + 4 * 64. After a # you may write what you like."]
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
        if self.free:
            return self.kernel()
        truth = self.truth(seed)
        text = self.skeleton(seed)
        for question in self.data["question"]:
            name = question["name"]
            text = text.replace(f"\n{name} = ?", f"\n{name} = {truth[name]}  # {question['because'].strip()}")
        if besides := self.data.get("yourself"):
            text += "\n" + textwrap.fill(f"For yourself: {besides}", 120, initial_indent="# ", subsequent_indent="# ") + "\n"
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

    def words(self, shape: dict[str, int]) -> str:
        """As the first line of the student's file names it."""
        given = {key: value for key, value in shape.items() if key != "of"} | self.told(shape)
        return f"{shape.get('of', self.rung)} at {', '.join(f'{key} = {value}' for key, value in given.items())}, d = 128"

    def shape_named(self, text: str) -> dict[str, int] | None:
        """The one whose first line the file has; None if it has none of them, or several."""
        lines = set(normal(text))
        found = [shape for shape in self.data["shapes"] if f"# {self.title}: {self.words(shape)}." in lines]
        return found[0] if len(found) == 1 else None

    def told(self, shape: dict[str, int]) -> dict[str, int]:
        """What a kernel is, where the shape names one: its tile, and the registers that ptxas gave it when it was measured."""
        of = shape.get("of")
        if not of:
            return {}
        variant = rungs.named(of).default
        return {"BR": variant.br, "BC": variant.bc, "WARPS": variant.warps, "registers": registers_of(of)}

    def truth(self, seed: str) -> dict[str, int]:
        """What the emulator counts, or what is worked out from the numbers that stand in the file."""
        questions = self.data["question"]
        if "value" in questions[0]:
            names = {"d": 128} | self.shape(seed) | self.told(self.shape(seed))
            return {question["name"]: number(question["value"], names) for question in questions}
        counters = counted(self.rung, **self.shape(seed))["counters"]
        return {question["name"]: counters[question["counter"]] for question in questions}

    # ---- judging -----------------------------------------------------------------------------------------------------
    def judge(self, text: str, skeleton: str, seed: str = "", shown_as: str = "kernel.cuh") -> Verdict:
        """`skeleton`: what the student began with."""
        text = text.removeprefix(BYTE_ORDER_MARK)
        if self.kind == "predict":
            return self._judge_answers(text, seed)
        if self.free:
            return self._compare(text, shown_as)
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
        (mine_fixed, _), (given_fixed, _) = in_parts(mine) or ([], []), in_parts(given)
        if len(mine_fixed) != len(given_fixed):
            return Verdict(False, "outside", f"The lines that begin and end your parts are not as they were:\n  {BEGIN} ..\n"
                                             f"  {END}\n`./ladder learn reset` keeps your file as kernel.cuh.old and begins anew.")
        ours, theirs = sum(mine_fixed, []), [line for _, line in sum(given_fixed, [])]
        for at, ((number, line), expected) in enumerate(zip(ours, theirs, strict=False)):
            if line == expected:
                continue
            more = len(ours) - len(theirs)
            if more > 0 and ours[at + more][1] == expected:
                return Verdict(False, "outside", f"Line {number} is outside of your parts, and was added:\n  {line.strip() or '(an empty line)'}\nNothing stood there.")
            if more < 0 and theirs[at - more] == line:
                return Verdict(False, "outside", f"A line outside of your parts was removed; it stood before line {number}:\n  {expected.strip()}")
            return Verdict(False, "outside", f"Line {number} is outside of your parts, and was changed:\n  {line.strip()}\n"
                                             + (f"It was:\n  {expected.strip()}" if expected else "It was empty."))
        if [len(part) for part in mine_fixed] != [len(part) for part in given_fixed]:
            return Verdict(False, "outside", "Lines were added or removed outside of your parts. "
                                             "`./ladder learn reset` keeps your file as kernel.cuh.old and begins anew.")
        return None

    def _run(self, text: str, shown_as: str, *flags: str) -> tuple[Verdict, list[dict]]:
        """A kernel in the rung's place: the verdict of `ladder try`, its counts judged unless only answers are asked, and its rows."""
        flags = flags if "--answers-only" in flags else (*flags, "--counts")
        with tempfile.TemporaryDirectory() as folder:
            file, report = Path(folder) / "kernel.cuh", Path(folder) / "report.json"
            file.write_text(text)
            ran = run_ladder("try", str(file), "--like", self.rung, "--json", str(report), *flags)
            said = (ran.stdout + ran.stderr).replace(str(file), shown_as).replace(f"{Path(folder).name}/kernel.cuh", shown_as)
            rows = json.loads(report.read_text()) if report.is_file() else []
        if ran.returncode == 0:
            said = said.split("\nShared memory, by source line")[0]
            if multicast := rows[0].get("counters", {}).get("multicast_bytes"):
                said += f"Bytes that a multicast brought, counted in each block where they landed: {multicast:,}\n"
            return Verdict(True, "passed", said), rows
        if ran.returncode not in (0, 1):
            raise CourseError(said.strip())
        if not rows:
            return Verdict(False, "not_a_kernel", said), rows
        if self.kind == "climb":  # that chapter is the answer
            said = said.replace(f'; {rungs.named(self.rung).directory}/README.md, "What breaks"', "")
        kinds = [failure["kind"] for row in rows for failure in row["failures"]]
        return Verdict(False, next((kind for kind in kinds if kind not in ABOUT_COUNTS), kinds[0]), said), rows

    def _try(self, text: str, shown_as: str) -> Verdict:
        return self._run(text, shown_as, *self.data.get("check", []))[0]

    def _compare(self, text: str, shown_as: str) -> Verdict:
        """Right answers, and no more of anything (climb), or no more in all (open), than the rung takes, at each shape of the check."""
        with ThreadPoolExecutor() as beside:
            target = beside.submit(rows_of, self.rung)
            verdict, rows = self._run(text, shown_as, "--answers-only")
            if not verdict.passed:
                return verdict
            aims = by_shape(target.result())
        weaker = [rows[0]["weaker"]] if "weaker" in rows[0] else []
        pairs = [(mine, aims[shape]) for shape, mine in by_shape(rows).items() if shape in aims]  # a tile of one's own has its own
        if self.kind == "climb":
            over = next((pair for pair in pairs if above(*pair)), None)
            mine, aim = over or pairs[0]
            lines = [f"The answers are right. Counted at n = {mine['n']}, {mine['batch'] * mine['heads']} head(s):",
                     f"{'':<20}{'yours':>14}{self.rung:>14}"]
            for counter in cost.COUNTERS:
                number_of, wanted = mine["counters"][counter], aim["counters"][counter]
                if number_of or wanted:
                    mark = "   too many" if number_of > wanted else "   fewer!" if number_of < wanted else ""
                    lines.append(f"{counter:<20}{number_of:>14,}{wanted:>14,}{mark}")
            return Verdict(not over, "above_target" if over else "passed", "\n".join(lines + weaker))
        costs = [(cost.cost_of(mine), cost.cost_of(aim)) for mine, aim in pairs]
        dearer = next((i for i, (mine, aim) in enumerate(costs) if mine.total > aim.total), None)
        row, (mine, aim) = pairs[dearer or 0][0], costs[dearer or 0]
        text = (f"The answers are right. By its counts at n = {row['n']}, {row['batch'] * row['heads']} head(s):\n"
                + "\n".join([f"yours is {mine}.", f"{self.rung} is {aim}.", *weaker]))
        return Verdict(dearer is None, "passed" if dearer is None else "above_target", text, costs[0][0])

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
                return Verdict(False, "unanswered", f"answers.txt:{number}: '{value}' is no number, nor can one be computed from it: "
                                                     "whole numbers, + - * / and parentheses may stand there, and a / must leave no rest.")
        open_questions = [name for name in names if name not in given]
        if open_questions:
            return Verdict(False, "unanswered", f"Not answered yet: {', '.join(open_questions)}.")
        truth = self.truth(seed)
        wrong = "not right" if "value" in self.data["question"][0] else "not what the emulator counts"
        lines = [f"{name}: {given[name]:,} is {'right' if given[name] == truth[name] else wrong}" for name in names]
        passed = given == truth
        return Verdict(passed, "passed" if passed else "wrong_number", "\n".join(lines))


def kernel_of(rung: str) -> str:
    file = rungs.named(rung).kernel
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{within(file)} cannot be read: {error}\n  As it was:  git restore {within(file)}") from None


def within(path: Path) -> Path:
    """As it is called in the repository."""
    return path.relative_to(rungs.root()) if path.is_relative_to(rungs.root()) else path


def registers_of(rung: str) -> int:
    """Per thread, as ptxas gave them for sm_90 when the rung was measured."""
    return next(row.registers for row in results.rows(cost.RESULTS) if row.stage == rung and row.registers)


def work_folder() -> Path:
    return Path(os.environ.get("LADDER_WORK", rungs.root() / "work"))


@functools.cache
def rows_of(rung: str) -> list[dict]:
    """What the check counts of a rung, at all of its shapes: counted once, and kept as long as neither kernel nor program changes."""
    built = rungs.program().stat()
    state = hashlib.sha256(f"{kernel_of(rung)}{built.st_size}{built.st_mtime_ns}".encode()).hexdigest()[:16]
    kept = work_folder() / ".counts" / f"{rung}-{state}.json"
    try:
        return json.loads(kept.read_text())
    except (OSError, ValueError):
        pass
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        ran = run_ladder("check", rung, "--on", "cpu", "--json", str(report))
        if ran.returncode != 0:
            raise CourseError(f"{rung}, whose counts are the aim, does not pass its own check:\n{(ran.stdout + ran.stderr).strip()}")
        rows = json.loads(report.read_text())
    with contextlib.suppress(OSError):  # it is counted again the next time
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(rows))
    return rows


@functools.cache
def counted(rung: str, **shape: int) -> dict:
    """What `ladder explain` writes of a rung."""
    flags = [word for key, value in shape.items() for word in (f"--{key}", str(value))]
    ran = run_ladder("explain", rung, *flags, "--json", "-")
    if ran.returncode != 0:
        raise CourseError(f"The ladder could not count {rung}:\n{ran.stderr.strip()}")
    return json.loads(ran.stdout)[0]


def cost_of_rung(rung: str) -> cost.Cost:
    """At the first shape of the check."""
    return cost.cost_of(counted(rung))


def by_shape(rows: list[dict]) -> dict[tuple, dict]:
    """A row of the first variant for each of its shapes; counts are of a launch with all of its inputs."""
    first: dict[tuple, dict] = {}
    for row in rows:
        if row["variant"] == rows[0]["variant"] and "counters" in row and not row["causal"]:
            first.setdefault((row["batch"], row["heads"], row["n"]), row)
    return first


def above(mine: dict, aim: dict) -> bool:
    return any(mine["counters"][counter] > aim["counters"][counter] for counter in cost.COUNTERS)


def changed_lines(before: list[str], after: list[str]) -> int:
    """Lines of the one that are not in the other, or the other way round, whichever are more."""
    removed = added = 0
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag != "equal":
            removed, added = removed + i2 - i1, added + j2 - j1
    return max(removed, added)


def in_parts(lines: list[str]) -> tuple[list[list[tuple[int, str]]], list[list[tuple[int, str]]]] | None:
    """The numbered lines before, between and after the blanks, marks included, and those in the blanks; None if the marks do not pair."""
    parts: list[list[tuple[int, str]]] = [[]]  # outside of a blank, in one, and so on
    for number, line in enumerate(lines, 1):
        begins, ends = line.lstrip().startswith(BEGIN), line.lstrip().startswith(END)
        inside = len(parts) % 2 == 0
        if (begins and inside) or (ends and not inside):
            return None
        if ends:
            parts.append([])
        parts[-1].append((number, line))
        if begins:
            parts.append([])
    return None if len(parts) % 2 == 0 else (parts[::2], parts[1::2])


def blanks_of(text: str) -> list[str] | None:
    """What stands in the blanks; None if the marks do not pair."""
    parts = in_parts(text.replace("\r\n", "\n").split("\n"))
    return parts and ["".join(f"{line}\n" for _, line in blank) for blank in parts[1]]


def with_blanks(skeleton: str, blanks: list[str]) -> str:
    """The skeleton with this in its blanks."""
    first, *others = ["\n".join(line for _, line in part) for part in in_parts(skeleton.split("\n"))[0]]
    return first + "".join(f"\n{blank}{other}" for blank, other in zip(blanks, others, strict=True))


def product(text: str) -> int:
    """'8 * 512' or '64 * (3 + 1)': whole numbers, + - * / and parentheses."""
    if len(text) > 200:
        raise ValueError(text)
    return number(text.replace(",", ""), {})


def number(text: str, names: dict[str, int]) -> int:
    """The same with names of numbers; // rounds down, and / must not have to. With names, min(a, b) and powers too."""
    def value(node: ast.AST) -> int:
        match node:
            case ast.Expression(body):
                return value(body)
            case ast.Constant(int(known)) if type(known) is int and known < 2**63:
                return known
            case ast.Name(name) if name in names:
                return names[name]
            case ast.Call(ast.Name("min"), [*several]) if names and several:
                return min(value(each) for each in several)
            case ast.BinOp(left, ast.Add(), right):
                return value(left) + value(right)
            case ast.BinOp(left, ast.Sub(), right):
                return value(left) - value(right)
            case ast.BinOp(left, ast.Mult(), right):
                return value(left) * value(right)
            case ast.BinOp(left, ast.Pow(), right) if names and 0 <= value(right) < 64:
                return value(left) ** value(right)
            case ast.BinOp(left, ast.FloorDiv(), right) if names and (divisor := value(right)):
                return value(left) // divisor
            case ast.BinOp(left, ast.Div() | ast.FloorDiv(), right) if (divisor := value(right)) and value(left) % divisor == 0:
                return value(left) // divisor
        raise ValueError(text)

    try:
        return value(ast.parse(text, mode="eval"))
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(text) from None


@functools.cache
def all_exercises() -> list[Exercise]:
    """In the order of their rungs, and those of one rung by their names: 02a_.. before 02b_.."""
    found = [Exercise(folder) for folder in sorted(FOLDER.iterdir()) if (folder / "exercise.toml").is_file()]
    return sorted(found, key=lambda exercise: (rungs.named(exercise.rung).order, exercise.name))


def called(typed: str) -> Exercise | None:
    """By its name, its number or its word."""
    wanted = typed.strip("/").lower()
    for exercise in all_exercises():
        number, _, word = exercise.name.partition("_")
        if wanted in (exercise.name, number, number.lstrip("0"), word):
            return exercise
    return None


def unknown(typed: str) -> Usage:
    names = {word: each.name for each in all_exercises() for word in (each.name, each.name.partition("_")[2])}
    near = difflib.get_close_matches(typed.strip("/").lower(), names, 1)
    return Usage(f"There is no exercise '{typed}'.{f' Did you mean {names[near[0]]}?' if near else ''}\n  All of them:  ./ladder learn list")


def run(main: Callable[[list[str]], int]) -> NoReturn:
    """A program of the course: what stops it is said in a sentence, with the exit code for it."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = DONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (CourseError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        code = {Usage: USAGE, NotHere: CANNOT_RUN_HERE}.get(type(error), FAILED)
    sys.exit(code)
