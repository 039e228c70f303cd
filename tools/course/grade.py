"""`./ladder grade DIR`: marks for the submissions in a folder. Each is judged in a cage of its own: course/grading.md.

    ./ladder grade DIR --exercise 02a            one exercise; DIR holds a folder, a zip or a file of each student
    ./ladder grade DIR --exercise 02a --json marks.json --csv points.csv
    ./ladder grade DIR --assignment 1 --seeds progress    all of its exercises, and the assignment's points for them
"""
from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import re
import resource
import secrets
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tools import rungs
from tools.course import cage as cages, exercises
from tools.course.adapters.gradebook import gradebook
from tools.course.exercises import CANNOT_RUN_HERE, CourseError, DONE, Exercise, FAILED, USAGE, Usage
from tools.course.handed_in import PROGRESS, Submission, Unclear, printable, submissions_in

MOST_SEED = 200  # characters; it is a name
MOST_SAID = 4000  # characters that a student is told
MOST_MEMORY, LEAST_MEMORY = 3 << 30, 512 << 20  # for one, where there is as much; and what a right one takes, with room: up to 334 MiB were seen
SEEDED = ("hunt", "predict")  # what a seed makes different
COMPILER_KILLED = "fatal error: Killed signal terminated program"  # as GCC says it; a kernel's own fault it is not

# In this order, and none without those before it: a race makes any answer luck, and counts of a wrong kernel say nothing. A predict exercise
# has its numbers alone.
FACETS = ("answers", "races", "counts", "prediction")
MARKS = {"answers": 50, "races": 20, "counts": 30}
# Kinds of failure that are neither answers nor counts: what the kernel did to others' memory, read before it was written, or left
# to the order of its threads.
RACES = ("emulator_report", "guard_overwritten", "input_modified", "order_dependent", "unset_variable")
NOT_JUDGED = ("not_judged", "other_seed")  # reasons


# ---- judging ----------------------------------------------------------------------------------------------------------

class CagedLadder:
    """`exercises.run_ladder` with a submitted kernel in a cage, and a report that only the judge can have written.

    The kernel is loaded into the judge's process. So what counts is neither its exit code nor what it prints, but a report between two
    copies of a secret that the judge has read before the kernel was there.
    """

    def __init__(self, cage: cages.Cage, launch_s: float):
        self.cage = cage
        self.launch_s = launch_s
        self.plain = exercises.run_ladder
        self.lock = threading.Lock()  # a cage ends all that its process has started meanwhile
        self.rows: list[dict] | None = None  # of the last kernel; without them
        self.fate = ""  # too_much_time, crashed, no_verdict; or nothing, if it was refused before it ran

    def __call__(self, *arguments: str, limit_s: float = 600) -> subprocess.CompletedProcess[str]:
        with self.lock:
            # Anything else runs a rung, and no stranger's kernel.
            return self._caged(*arguments) if arguments[0] == "try" else self.plain(*arguments, limit_s=limit_s)

    def _caged(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        words = list(arguments)
        at = words.index("--json") + 1
        report, words[at] = Path(words[at]), "-"
        secret = secrets.token_hex(32)
        file = Path(words[1])
        file.chmod(0o644)
        file.parent.chmod(0o755)
        ended = self.cage.run([str(rungs.program().resolve()), *words, "--sealed", "--timeout", f"{self.launch_s:g}"],
                              f"{secret}\n".encode(), [file])
        # Without progress and seconds, which are never the same.
        said = re.sub(r"^ *\d+ %  .*\n", "", ended.stderr.decode(errors="replace"), flags=re.M)
        said = re.sub(r"had not ended after [\d.]+ s", "had not ended in time", said)
        self.rows = unsealed(ended.stdout, secret)
        if self.rows is None:
            self.fate, told = without_verdict(ended, said)
            return subprocess.CompletedProcess(words, FAILED, "", told)
        report.write_text(json.dumps(self.rows))
        return subprocess.CompletedProcess(words, DONE if all(row["ok"] for row in self.rows) else FAILED, "", said)


def unsealed(stdout: bytes, secret: str) -> list[dict] | None:
    parts = stdout.decode(errors="replace").split(secret)
    if len(parts) != 3 or parts[0] or parts[2]:
        return None
    with contextlib.suppress(ValueError):
        rows = json.loads(parts[1])
        if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
            return rows
    return None


def without_verdict(ended: cages.Ended, said: str) -> tuple[str, str]:
    if ended.stopped:
        return f"too_much_{ended.stopped}", f"It was stopped, because it took too much {ended.stopped}."
    if ended.killed or ended.code == FAILED and COMPILER_KILLED in said:
        return "too_much_memory", (f"{'It' if ended.killed else 'Its compiler'} was killed (SIGKILL), and not by this judge. The system does that where "
                                   "memory is short; with fewer at once each has more:  --jobs 1")
    if ended.code < 0 or ended.code > 128:
        number = ended.code % 128 if ended.code > 0 else -ended.code
        return "crashed", f"It crashed ({signal.Signals(number).name if number in signal.valid_signals() else number}) before a verdict."
    if ended.code in (FAILED, USAGE, CANNOT_RUN_HERE) and said.strip():
        return "", said
    return "no_verdict", f"It ended by itself, with {ended.code} and without a verdict."


def shares(verdict: exercises.Verdict, rows: list[dict] | None, kind: str, questions: int) -> dict[str, float]:
    """How much of each facet's marks is earned, from 0 to 1."""
    if kind == "predict":
        right = len(re.findall(r" is right$", verdict.text, re.M)) if verdict.reason in ("wrong_number", "passed") else 0
        return {"prediction": right / questions}
    earned = dict.fromkeys(FACETS[:3], 0.0)
    if verdict.passed and rows:
        return dict.fromkeys(FACETS[:3], 1.0)
    about = set()
    for row in rows or []:
        kinds = {failure["kind"] for failure in row["failures"]} - set(exercises.ABOUT_COUNTS)
        about |= {"races" if kind in RACES else "answers" for kind in kinds}
        if kinds and row["max_err"] is None:  # a launch that was ended has no answers
            about.add("answers")
    if rows and "answers" not in about:
        earned["answers"] = 1.0
        earned["races"] = float("races" not in about)
    return earned


def judged(exercise: Exercise, submission: Submission, marks: dict[str, float], ladder: CagedLadder) -> dict:
    ladder.rows, ladder.fate = None, ""
    exercises.run_ladder = ladder
    try:
        # The one file name that a student knows, whatever theirs was called.
        verdict = exercise.judge(submission.text, exercise.skeleton(submission.seed), submission.seed, exercise.file_name)
    except CourseError as error:  # what stops `learn` is no verdict here either
        verdict = exercises.Verdict(False, "not_judged", str(error))
    earned = shares(verdict, ladder.rows, exercise.kind, len(exercise.data.get("question", [])) or 1)
    said = verdict.text if not verdict.passed or exercise.kind == "predict" else "Passed."
    facets = {name: {"score": round(marks[name] * earned.get(name, 0.0), 2), "of": marks[name]} for name in FACETS if marks.get(name)}
    return {"score": round(sum(facet["score"] for facet in facets.values()), 2), "passed": verdict.passed, "reason": ladder.fate or verdict.reason,
            "marks": facets, "said": said.strip()[:MOST_SAID]} | {"weaker": row["weaker"] for row in ladder.rows or [] if "weaker" in row}


def nothing_judged(reason: str, text: str, marks: dict[str, float]) -> dict:
    return {"score": 0.0, "passed": False, "reason": reason,
            "marks": {name: {"score": 0.0, "of": marks[name]} for name in FACETS if marks.get(name)}, "said": text}


class Class:
    """Submissions, each judged in a process of its own, which is ended when it takes too long or too much."""

    def __init__(self, exercise: Exercise, marks: dict[str, float], ladder: CagedLadder):
        self.exercise, self.marks, self.ladder = exercise, marks, ladder

    def _child(self, submission: Submission, answer: multiprocessing.connection.Connection) -> None:
        # Whatever ends the class ends this one, which then ends its cage.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(FAILED))
        cages.end_with_parent()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (120, resource.RLIM_INFINITY))  # of this one, which compares texts
        answer.send_bytes(json.dumps(judged(self.exercise, submission, self.marks, self.ladder)).encode())

    def judge(self, submissions: list[Submission], jobs: int, told=lambda submission: None) -> None:
        fork = multiprocessing.get_context("fork")
        waiting, running = list(reversed(submissions)), {}
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    submission = waiting.pop()
                    ours, theirs = fork.Pipe(duplex=False)
                    process = fork.Process(target=self._child, args=(submission, theirs))
                    process.start()
                    theirs.close()
                    running[ours] = submission, process, time.monotonic() + self.ladder.cage.limits.seconds + 60
                for ours in multiprocessing.connection.wait(list(running), timeout=0.5):
                    submission, process, _ = running.pop(ours)
                    try:
                        submission.result = json.loads(ours.recv_bytes())
                    except (EOFError, ValueError):
                        submission.result = nothing_judged("not_judged", "It could not be judged: its text takes too long to compare.",
                                                           self.marks)
                    ours.close()
                    process.join()
                    told(submission)
                for _, process, deadline in running.values():
                    if time.monotonic() > deadline:
                        process.terminate()
        finally:
            for _, process, _ in running.values():
                process.terminate()
            for _, process, _ in running.values():
                process.join()


# ---- what comes out ---------------------------------------------------------------------------------------------------

@dataclass
class Graded:
    """A class in one exercise."""
    exercise: Exercise
    marks: dict[str, float]
    submissions: list[Submission]
    isolation: str

    def document(self) -> dict:
        """No times and no dates in it: the same submissions give the same bytes."""
        return {"exercise": self.exercise.name, "of": sum(self.marks.values()), "isolation": self.isolation,
                "submissions": [{"student": each.student, "file": each.file, "seed": each.seed, **each.result} for each in self.submissions]}


@dataclass
class Assignment:
    """Of course/assignments.toml: its exercises, and the points for them, of which each exercise has the same share."""
    name: str
    exercises: list[Exercise]
    points: float

    def document(self, graded: list[Graded]) -> dict:
        documents = [each.document() for each in graded]
        scores = [{each["student"]: each["score"] / of["of"] for each in of["submissions"]} for of in documents]
        points = {student: round(self.points * sum(of.get(student, 0) for of in scores) / len(scores), 2) for student in sorted(set().union(*scores))}
        return {"assignment": self.name, "of": self.points, "points": points, "exercises": documents}


def table(most: float, columns: list[str], rows: list[tuple[str, float, list[float], str]], passed: str = "") -> str:
    """Each row: a student, the points, what stands in the columns, and why."""
    width = max(len("student"), *(len(printable(student)) for student, *_ in rows))
    lines = [f"{'student':<{width}}  {f'of {most:g}':>7}  " + "".join(f"{column:>15}" for column in columns) + "  why"]
    for student, points, scores, why in rows:
        lines.append(f"{printable(student):<{width}}  {points:>7g}  " + "".join(f"{score:>15g}" for score in scores) + f"  {printable(why)}")
    mean = sum(points for _, points, *_ in rows) / len(rows)
    return "\n".join([*lines, f"\n{len(rows)} graded{passed}, mean {mean:.1f} of {most:g}."])


def table_of_assignment(whole: dict) -> str:
    by_student = [{each["student"]: each for each in of["submissions"]} for of in whole["exercises"]]
    numbers, rows = [of["exercise"].partition("_")[0] for of in whole["exercises"]], []
    for student, points in whole["points"].items():
        row = [of.get(student, nothing_judged("not_judged", "", {})) for of in by_student]
        why = [f"{number} {each['reason']}" for number, each in zip(numbers, row) if not each["passed"]]
        rows.append((student, points, [each["score"] for each in row], ", ".join(why) or "passed"))
    return table(whole["of"], [f"{number} {of['of']:g}" for number, of in zip(numbers, whole["exercises"])], rows)


def table_of_exercise(whole: dict, marks: dict[str, float]) -> str:
    names = [name for name in FACETS if marks.get(name)]
    rows = [(each["student"], each["score"], [each["marks"][name]["score"] for name in names],
             each["reason"] + (f", same file as {each['same_as'][0]}" if each.get("same_as") else "")) for each in whole["submissions"]]
    return table(whole["of"], [f"{name} {marks[name]:g}" for name in names], rows, f", {sum(each['passed'] for each in whole['submissions'])} passed")


# ---- the command ------------------------------------------------------------------------------------------------------

def assignment_called(typed: str) -> Assignment:
    known = tomllib.loads((exercises.FOLDER.parent / "assignments.toml").read_text())["assignment"]
    graded_ones = {each["name"]: each for each in known if each.get("exercises")}
    found = graded_ones.get(typed) or graded_ones.get(f"assignment {typed}")
    if not found:
        raise Usage(f"There is no assignment '{typed}' that has exercises.\n  There are: {', '.join(name.removeprefix('assignment ') for name in graded_ones)}")
    return Assignment(found["name"], [exercises.called(name) for name in found["exercises"]],
                      sum(mark["points"] for mark in found["mark"] if mark.get("from_exercises")))


def usual_marks(given: set[str]) -> dict[str, float]:
    """Of 100. Facets that are right already in the file that everybody begins with earn nothing, and the others more."""
    kept = {name: most for name, most in MARKS.items() if name not in given} or {"counts": MARKS["counts"]}
    return {name: round(100 * part / sum(kept.values()), 2) for name, part in kept.items()}


def starts(exercise: Exercise) -> list[Submission]:
    """What students begin with: one file, or one for each bug that a seed may choose."""
    if exercise.kind != "hunt":
        return [Submission("start", text=exercise.skeleton())]
    wanted = range(len(exercise.data["bug"]))
    seeds = [next(seed for seed in map(str, itertools.count()) if exercise.choose("bug", seed) == bug) for bug in wanted]
    return [Submission(f"start {seed}", text=exercise.skeleton(seed), seed=seed) for seed in seeds]


def seed_in(progress: str, exercise: Exercise) -> str:
    """With which the exercise was begun, as `learn` wrote it into work/progress.json; nobody else's text is trusted to be that."""
    try:
        data = json.loads(progress)
        seed = data["exercises"].get(exercise.name, {}).get("seed", data["seed"])
        seed.encode()
        if len(seed) > MOST_SEED:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unclear(f"Its seed is not known: there is no work/{PROGRESS} that has one.") from None
    return seed


def seeds_of(typed: str, submissions: list[Submission], exercise: Exercise, seed: str = "") -> None:
    if typed == "progress":
        for each in submissions:
            if not each.problem and exercise.kind in SEEDED:
                try:
                    each.seed = seed_in(each.progress, exercise)
                except Unclear as unclear:
                    each.problem, each.unread = str(unclear), True
        return
    given = dict.fromkeys((each.student for each in submissions), seed)
    if typed:
        try:
            given = {row[0].strip(): row[1].strip() for row in csv.reader(Path(typed).read_text().splitlines()) if row}
        except (OSError, IndexError, UnicodeDecodeError) as error:
            raise Usage(f"--seeds takes 'progress', or a file with a line STUDENT,SEED for each; {typed}: {error}") from None
    missing = [each.student for each in submissions if each.student not in given]
    if missing:
        raise Usage(f"{typed} has no seed for {', '.join(missing[:5])}{' and more' if len(missing) > 5 else ''}.")
    for each in submissions:
        each.seed = given[each.student]


def writable(*files: str) -> None:
    if files.count("-") > 1:
        raise Usage("Only one of --json - and --csv - can have stdout.")
    for file in {*files} - {"", "-"}:
        try:
            Path(file).open("a").close()
        except OSError as error:
            raise Usage(f"{file} cannot be written: {error.strerror}.") from None


def write(file: str, text: str) -> None:
    if file == "-":
        sys.stdout.write(text)
    elif file:
        Path(file).write_text(text)


def jobs_and_memory(jobs: int | None) -> tuple[int, int]:
    """How many at once, and bytes for each. What all of them may hold must be there, or the system ends whom it likes."""
    available = cages.memory_available()
    jobs = jobs or min(os.cpu_count() or 1, max(1, available // LEAST_MEMORY))
    return jobs, min(MOST_MEMORY, available // jobs)


def toolchains(build: Path) -> list[Path]:
    """Where the compilers of a build are installed, if not with the system: a prefix with bin/ and lib/gcc or lib/clang. No other folder
    is taken for one: a compiler in somebody's ~/bin does not show the class ~."""
    listed = build / "compile_commands.json"
    compilers = {Path(shlex.split(entry["command"])[0]) for entry in json.loads(listed.read_text())} if listed.exists() else set()
    found = {path.parents[1] for compiler in compilers for path in (compiler, compiler.resolve()) if path.is_absolute()}
    return sorted(prefix for prefix in found if not any(prefix.is_relative_to(folder) for folder in cages.SYSTEM)
                  and any((prefix / library).is_dir() for library in ("lib/gcc", "lib64/gcc", "lib/clang", "lib64/clang")))


def cage_for(exercise: Exercise, limits: cages.Limits, required: bool) -> cages.Cage:
    """What compiling one kernel needs, and no kernel of a rung."""
    program = rungs.program().resolve()
    reads = [program.parent, rungs.ROOT / "common", rungs.ROOT / "harness", rungs.named(exercise.rung).path / "stage.cu", *toolchains(program.parent)]
    try:
        cage, why = cages.best(reads, [str(program), "describe", "--json", "-"], limits)
    except cages.NoCage as none:
        raise exercises.NotHere(f"Nobody can be graded here: {program} does not run in a cage.\n{textwrap.indent(str(none), '  ')}\n  Root hands its "
                                "rights in first, so all folders on the way to it must be open to others (chmod o+x); with bubblewrap they need "
                                "not.") from None
    if cage.closed:
        return cage
    way_out = f"  {why}\n  What else helps, on Ubuntu 24.04 too: course/grading.md, Isolation"
    if required:
        raise Usage(f"There is no isolation here, and it is required.\n{way_out}")
    print("WARNING: no isolation. A hostile kernel has the rights of whoever runs this, network and files included; limits on time, memory "
          f"and processes hold.\n{way_out}", file=sys.stderr)
    return cage


def of_another_seed(exercise: Exercise, each: Submission) -> str:
    """Numbers of another shape than the one that they would be held against."""
    named, expected = (exercise.shape_named(each.text), exercise.shape(each.seed)) if exercise.kind == "predict" else (None, None)
    if named is None or named == expected:
        return ""
    seed = f"With the seed '{each.seed}'" if each.seed else "Without a seed"
    return (f"Its first line names {exercise.words(named)}. {seed} it would be {exercise.words(expected)}. The seed with which it was begun stands in "
            f"work/{PROGRESS}.")


def prove(exercise: Exercise, ladder: CagedLadder) -> float:
    """The solution is judged first: who fails after that fails by the submission. In seconds, how long it took."""
    began = time.monotonic()
    solution = Submission("the solution", text=exercise.solution())
    Class(exercise, MARKS, ladder).judge([solution], 1)
    if not solution.result["passed"]:
        raise exercises.NotHere(f"The solution itself does not pass here, so that nobody can be graded:\n{solution.result['said']}\n"
                                f"  By itself:  ./ladder check {rungs.named(exercise.rung).number}")
    return time.monotonic() - began


def flags() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./ladder grade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder, zip or file of each student; or the one submission itself")
    parser.add_argument("--exercise", metavar="NAME", help="or its number; default: the one that DIR is named after")
    parser.add_argument("--assignment", default="", metavar="NUMBER", help="all exercises of one of course/assignments.md, and its points for them")
    parser.add_argument("--seeds", default="", metavar="FILE",
                        help="lines STUDENT,SEED; or 'progress': it stands in each one's work/progress.json; default: no seeds")
    parser.add_argument("--seed", default="", metavar="NAME", help="of a single submission, or one that all were given")
    parser.add_argument("--json", default="", metavar="FILE", help="all of it; - is stdout")
    parser.add_argument("--csv", default="", metavar="FILE", help="a line for each student: the points, and the marks of each exercise")
    parser.add_argument("--at-least", type=float, metavar="N", help="exit code 1 if anybody has less")
    parser.add_argument("--require-isolation", action="store_true", help="exit code 2 where there is none")
    parser.add_argument("--jobs", type=int, metavar="N", help="submissions at once; default: one a core, fewer where memory is short")
    return parser


def exercise_of(typed: argparse.Namespace) -> Exercise:
    """The one that is named, or that the folder is named after."""
    if exercise := exercises.called(typed.exercise or typed.folder.resolve().name):
        return exercise
    raise exercises.unknown(typed.exercise) if typed.exercise else Usage(
        f"Which exercise?  ./ladder grade {typed.folder} --exercise 02a\n  All of them:  ./ladder learn list")


def graded_in(exercise: Exercise, typed: argparse.Namespace) -> Graded:
    submissions = submissions_in(typed.folder, exercise)
    seeds_of(typed.seeds, submissions, exercise, typed.seed)
    writable(typed.json, typed.csv)
    jobs, memory = jobs_and_memory(typed.jobs)
    limits = cages.Limits(seconds=900, memory=memory)
    ladder = CagedLadder(cage_for(exercise, limits, typed.require_isolation), 300)
    if exercise.kind == "predict":
        marks = {"prediction": 100.0}
    else:
        took = prove(exercise, ladder)
        # A right kernel is never stopped because the machine is slow or busy: one launch of many may take what they all took.
        ladder.launch_s = max(20, 4 * took)
        ladder.cage.limits = dataclasses.replace(limits, seconds=max(60, 8 * took))
        begun = starts(exercise)
        Class(exercise, MARKS, ladder).judge(begun, jobs)
        marks = usual_marks({name for name in MARKS if all(each.result["marks"][name]["score"] for each in begun)})

    def told(submission: Submission) -> None:
        left = sum(not each.result for each in submissions)
        print(f"{len(submissions) - left} of {len(submissions)}: {printable(submission.student)}", file=sys.stderr)

    # Who hand in the same file are judged once, and named to each other.
    first: dict[tuple[str, str], Submission] = {}
    for each in submissions:
        if each.problem:
            each.result = nothing_judged("not_judged", each.problem, marks)
        elif another := of_another_seed(exercise, each):
            each.problem, each.unread = another, True
            each.result = nothing_judged("other_seed", another, marks)
        elif exercises.normal(each.text) == exercises.normal(exercise.skeleton(each.seed)):
            each.result = nothing_judged("untouched", "It is the file that everybody begins with.", marks)
        else:
            first.setdefault((each.text, each.seed), each)
    Class(exercise, marks, ladder).judge(list(first.values()), jobs, told)
    for each in submissions:
        if not each.problem and (each.text, each.seed) in first:
            same = [other.student for other in submissions if other is not each and not other.problem and other.text == each.text]
            each.result = first[each.text, each.seed].result | ({"same_as": same} if same else {})
    return Graded(exercise, marks, submissions, ladder.cage.kind)


def main(arguments: list[str]) -> int:
    typed = flags().parse_args(arguments)
    if not typed.folder.is_dir():
        raise Usage(f"{typed.folder} is {'no folder' if typed.folder.exists() else 'not there'}; grade takes the folder of the submissions.")
    if typed.jobs is not None and typed.jobs <= 0:
        raise Usage("--jobs is more than 0.")
    if typed.seed and typed.seeds:
        raise Usage("--seed is one for all, and --seeds one for each: leave one of them out.")
    if typed.assignment:
        if typed.exercise:
            raise Usage("--assignment has its own exercises and points: leave --exercise out.")
        assignment = assignment_called(typed.assignment)
        graded = [graded_in(exercise, typed) for exercise in assignment.exercises]
        whole = assignment.document(graded)
        points, said = whole["points"].values(), table_of_assignment(whole)
    else:
        graded = [graded_in(exercise_of(typed), typed)]
        whole = graded[0].document()
        points, said = [each["score"] for each in whole["submissions"]], table_of_exercise(whole, graded[0].marks)
    # Where it was judged, a kernel may pass that elsewhere does not.
    said = "\n".join([said, *dict.fromkeys(printable(each.result["weaker"]) for of in graded for each in of.submissions if "weaker" in each.result)])
    write(typed.json, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    write(typed.csv, gradebook(whole))
    print(said, file=sys.stderr if "-" in (typed.json, typed.csv) else sys.stdout)
    unread = dict.fromkeys(f"NOT GRADED: {printable(each.student)}: {each.problem}" for of in graded for each in of.submissions if each.unread)
    for line in unread:
        print(line, file=sys.stderr)
    nobody = all(each.result["reason"] in NOT_JUDGED for of in graded for each in of.submissions)
    if nobody:
        first = graded[0].submissions[0]
        print(f"NOBODY WAS JUDGED. The first, {printable(first.student)}: {printable(first.result['said'])}\n"
              "  What may lie in the folder: course/grading.md", file=sys.stderr)
    low = typed.at_least is not None and min(points) < typed.at_least
    return FAILED if low or unread or nobody else DONE


if __name__ == "__main__":
    exercises.run(main)
