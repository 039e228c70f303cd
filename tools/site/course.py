"""Writes the tables of the course: its exercises, the plans of plans.toml with their minutes, the rubrics of
assignments.toml, and of all of it what a lecturer asks first.

With --check nothing is written: exits 1 when a page is older than what it is made of.

A plan's minutes are added up here. Those of an exercise stand in its exercise.toml. Reading is reckoned from the length
of a page: words of prose, and for a chapter the lines of its kernel that are new.
"""
from __future__ import annotations

import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import changes, rungs
from tools.course import exercises
from tools.course.exercises import CourseError, Exercise
from tools.paths import ROOT
from tools.site import generated

COURSE = ROOT / "course"
WORDS_PER_MINUTE, LINES_PER_MINUTE = 60, 3  # with a pencil, and in a second language
MARKS = 100  # of an assignment


@dataclass(frozen=True)
class Page:
    title: str
    path: Path
    minutes: int


def rounded(minutes: float) -> int:
    return max(5, 5 * round(minutes / 5))


def prose_of(text: str) -> str:
    """Without code, and without what is folded twice or hidden."""
    text = re.sub(r"^```.*?^```$", "", re.sub(r"<!--.*?-->", "", text, flags=re.S), flags=re.M | re.S)
    return re.sub(r"<details><summary>All rows.*?</details>|<[^>]+>|\]\([^)]*\)", " ", text, flags=re.S)


def page(name: str) -> Page:
    """`docs/gpu`, or a rung by its name."""
    if name.startswith("docs/"):
        path, lines = ROOT / f"{name}.md", 0
        title = path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
    else:
        rung = rungs.by_name().get(name)
        if rung is None:
            raise CourseError(f"plans.toml: there is no rung {name}; pages are docs/NAME")
        path, title = rung.path / "README.md", rung.name
        lines = changes.since_previous()[name][1] if rung.previous else len(rung.kernel.read_text(encoding="utf-8").splitlines())
    words = len(prose_of(path.read_text(encoding="utf-8")).split())
    return Page(title, path, rounded(words / WORDS_PER_MINUTE + lines / LINES_PER_MINUTE))


def named(names: list[str]) -> list[Exercise]:
    known = {exercise.name: exercise for exercise in exercises.all_exercises()}
    if missing := [name for name in names if name not in known]:
        raise CourseError(f"There is no exercise {', '.join(missing)}; there are: {' '.join(known)}")
    return [known[name] for name in names]


def hours(minutes: int) -> str:
    return f"{minutes // 60} h {minutes % 60:02}" if minutes >= 60 else f"{minutes} min"


def link(text: str, path: Path) -> str:
    return f"[{text}]({os.path.relpath(path, COURSE)})"


def task(exercise: Exercise) -> str:
    return link(exercise.name.partition("_")[0], exercise.folder / "task.md")


def needs(command: str) -> str:
    """The oldest GPU that all rungs of a command run on."""
    stages = [rung for word in shlex.split(command)[1:] if not word.startswith("-") for rung in [rungs.named(word)]]
    return f"sm_{max(rung.min_sm for rung in stages)}"


def exercises_table() -> str:
    lines = ["| exercise | kind | rung | minutes |", "|---|---|---|---:|"]
    every = exercises.all_exercises()
    for exercise in every:
        rung = rungs.named(exercise.rung)
        lines.append(f"| {task(exercise)} {exercise.title} | {exercise.kind} | {link(rung.name, rung.path / 'README.md')} | {exercise.minutes} |")
    lines += ["", f"{len(every)} exercises, {hours(sum(exercise.minutes for exercise in every))}."]
    return "\n".join(lines)


def exercises_of(week: dict) -> list[Exercise]:
    if "exercises" in week:
        return named(week["exercises"])
    return [exercise for exercise in exercises.all_exercises() if rungs.named(exercise.rung).name in week["read"]]


def inputs_table() -> str:
    """The sets of inputs that a check names, each as the code says what it is."""
    enum = (ROOT / "harness" / "problem" / "inputs.hpp").read_text(encoding="utf-8").partition("enum class InputKind {")[2].partition("};")[0]
    kinds = re.findall(r"^  (\w+), +// (.+(?:\n +// .+)*)$", enum, re.M)
    if len(kinds) < 5 or len(kinds) != len(re.findall(r"^  \w+,", enum, re.M)):
        raise CourseError("harness/problem/inputs.hpp: an input set without a word about it")
    return "\n".join(["| inputs | what they are |", "|---|---|", *(f"| `{name}` | {' '.join(said.replace('//', ' ').split())} |" for name, said in kinds)])


@dataclass(frozen=True)
class Minutes:
    """Of a plan, in all."""
    in_class: int
    reading: int
    exercises: int
    at_home: int  # of the exercises, those for which no lab has room
    writing: int  # of the assignments
    project: int

    @property
    def all(self) -> int:
        return self.in_class + self.reading + self.at_home + self.writing + self.project


def assignments_of(plan: dict) -> list[tuple[dict, dict]]:
    """What a plan says of each, when it is handed out and in and what of the grade it is; and the assignment itself."""
    known = {each["name"]: each for each in read_toml("assignments.toml")["assignment"]}
    done = {exercise.name: number for number, week in enumerate(plan["week"], 1) for exercise in exercises_of(week)}
    found = []
    for said in plan["assignment"]:
        where = f"plans.toml, {plan['name']}, {said['name']}"
        if said["name"] not in known:
            raise CourseError(f"{where}: assignments.toml has none of that name, only {', '.join(known)}")
        if not said["out"] < said["due"] <= len(plan["week"]):
            raise CourseError(f"{where}: handed out after week {said['out']} and in by week {said['due']} of {len(plan['week'])}")
        for name in known[said["name"]].get("exercises", []):
            if done.get(name, len(plan["week"]) + 1) > said["out"]:
                raise CourseError(f"{where}: {name} is not done by week {said['out']}")
        found.append((said, known[said["name"]]))
    if (weights := sum(said["weight"] for said, _ in found)) != MARKS:
        raise CourseError(f"plans.toml, {plan['name']}: its assignments are {weights} % of the grade, not {MARKS}")
    return found


def room_in(week: dict, plan: dict) -> int:
    """Minutes of a week's lab that are for exercises."""
    return week.get("room", plan["lab"])


def minutes_of(plan: dict) -> Minutes:
    in_labs = [sum(exercise.minutes for exercise in exercises_of(week)) for week in plan["week"]]
    texts = [assignment for _, assignment in assignments_of(plan)]
    return Minutes(len(plan["week"]) * (plan["lecture"] + plan["lab"]), sum(page(name).minutes for week in plan["week"] for name in week["read"]),
                   sum(in_labs), sum(max(0, work - room_in(week, plan)) for week, work in zip(plan["week"], in_labs)),
                   sum(each["writing"] for each in texts if "exercises" in each), sum(each["writing"] for each in texts if "exercises" not in each))


def deadlines_table(plan: dict) -> str:
    """A proposal."""
    of = minutes_of(plan)
    lines = ["| | handed out after week | handed in by the end of week | to write, or to do | of the grade |", "|---|---:|---:|---:|---:|"]
    lines += [f"| [{each['name']}](assignments.md#{each['anchor']}) | {said['out']} | {said['due']} | {hours(each['writing'])} | {said['weight']} % |"
              for said, each in assignments_of(plan)]
    parts = [f"{hours(of.in_class)} in class", f"{hours(of.reading)} of reading", f"{hours(of.at_home)} of exercises for which no lab has room",
             f"{hours(of.writing)} of writing"] + ([f"{hours(of.project)} for the project"] if of.project else [])
    return "\n".join([*lines, "", f"In all {hours(of.all)} for a student: {', '.join(part for part in parts if not part.startswith('0 '))}."])


def questions_table() -> str:
    """What a lecturer asks before anything else."""
    every = exercises.all_exercises()
    plans = [(plan["name"], minutes_of(plan)) for plan in read_toml("plans.toml")["plan"]]
    how_long = "; ".join(f"{name}: {hours(of.all)}" for name, of in plans) + ". That is all of a student's work, in class and at home"
    by_person = {each["name"]: marking(each) for each in read_toml("assignments.toml")["assignment"]}
    project = by_person.pop("project")
    rows = [
        ("For whom?", "from the third year on; C++ and a first kernel in CUDA; no machine learning", "[whom it is for](teaching.md#whom-it-is-for)"),
        ("What can they do afterwards?", "say what limits a kernel before it is measured, order copies and barriers and prove it, defend a number with its interval",
         "[what they learn](teaching.md#whom-it-is-for)"),
        ("How long?", how_long, "[plans](plans.md)"),
        ("Which exercises?", f"{len(every)} on the ladder's own kernels, {min(each.minutes for each in every)} to {max(each.minutes for each in every)} minutes each",
         "[the exercises](exercises.md)"),
        ("A GPU?", "for no exercise; for times one card, at which all take turns", "[one GPU](teaching.md#one-gpu-for-everybody)"),
        ("What is marked?", "kernels and numbers by the program; predictions and reasons by a person: three assignments and a project, with rubrics",
         "[assignments](assignments.md)"),
        ("One grade?", "weights, deadlines, late work, and when solutions are shown: a proposal", "[deadlines](plans.md#six-weeks), "
         "[one grade](assignments.md#one-grade-of-all)"),
        ("How much marking?", f"for a hundred students, by our estimate, {hours(sum(by_person.values()))} for the written parts of {len(by_person)} assignments, {hours(project)} for projects "
         f"in pairs, and {hours(100 * 5 * len(by_person))} for a question or two to each student about each assignment",
         "[assignments](assignments.md)"),
        ("A hundred students?", "about five minutes per exercise on two cores, each submission in a cage; marks for an LMS", "[grading](grading.md)"),
        ("Where will they get stuck?", "at the report of a check: what each mostly means, and a question that helps",
         "[what to say](teaching.md#where-students-will-get-stuck-we-expect-and-what-to-say)"),
        ("Answers, slides, paper?", "`make slides`, `make handouts`, with answers `make handouts ANSWERS=1`",
         "[the first hour](teaching.md#the-first-hour-with-it), [answers](answers.md)"),
    ]
    return "\n".join(["| you ask | in short | all of it |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)])


def plan_table(plan: dict) -> str:
    lines = [plan["about"], "", "| week | subject | read | minutes | exercises | minutes | to show |", "|---:|---|---|---:|---|---:|---|"]
    in_all = minutes_of(plan)
    taken: list[str] = []
    weeks = plan["week"]
    for number, week in enumerate(weeks, 1):
        pages, chosen = [page(name) for name in week["read"]], exercises_of(week)
        reading, work = sum(each.minutes for each in pages), sum(exercise.minutes for exercise in chosen)
        written = sum(each["writing"] for said, each in assignments_of(plan) if said["due"] == number and "exercises" in each)  # a project has weeks of its own
        if reading + work + written > (most := plan["most"] + room_in(week, plan)):
            raise CourseError(f"plans.toml, {plan['name']}, week {number}: {reading + work + written} minutes, and lab and home have {most}")
        show = f"`./ladder {week['show']}` ({needs(week['show'])})"
        lines.append(f"| {number} | {week['subject']} | {', '.join(link(each.title, each.path) for each in pages)} | {reading} "
                     f"| {'; '.join(filter(None, (', '.join(map(task, chosen)), week.get('lab', ''))))} | {work or ''} | {show} |")
        taken += [exercise.name for exercise in chosen]
    lines += [f"| | in all | | {in_all.reading} | {len(taken)} | {in_all.exercises} | |", "",
              f"In class {hours(in_all.in_class)}, {plan['lecture']} minutes of lecture and {plan['lab']} of lab per week; reading {hours(in_all.reading)}; exercises "
              f"{hours(in_all.exercises)}, most of them in the labs."]
    read = {name for week in weeks for name in week["read"]}
    last = max(rung.order for rung in rungs.known() if rung.name in read)
    parts = {rung.part for rung in rungs.known() if rung.name in read}
    passed_over = [rung for rung in rungs.known() if rung.order < last and rung.part in parts and rung.name not in read]
    if passed_over:
        lines += ["", "A chapter refers to the rung before it. No week reads these; tell each from its first slide, in two minutes, before the chapter that follows it: "
                  f"{', '.join(link(rung.number, rung.path / 'README.md') for rung in passed_over)}."]
    more = [exercise for exercise in exercises.all_exercises() if exercise.name not in taken and rungs.named(exercise.rung).order <= last]
    if more:
        lines += ["", f"To choose from, for those who are faster: {', '.join(f'{task(exercise)} ({exercise.minutes})' for exercise in more)}."]
    return "\n".join(lines)


def marking(assignment: dict) -> int:
    """Minutes for a hundred students, of which a pair has one text."""
    return 100 // assignment.get("together", 1) * assignment["marking"]


def rubric_table(assignment: dict) -> str:
    rows = assignment["mark"]
    if (points := sum(row["points"] for row in rows)) != MARKS:
        raise CourseError(f"assignments.toml, {assignment['name']}: {points} points, not {MARKS}")
    lines = []
    if chosen := named(assignment.get("exercises", [])):
        lines += [f"Exercises: {', '.join(f'{task(exercise)} {exercise.title}' for exercise in chosen)}, {hours(sum(exercise.minutes for exercise in chosen))}. "
                  f"The written part: {hours(assignment['writing'])}.", ""]
    else:
        lines += [f"About {hours(assignment['writing'])} for each of the two.", ""]
    pairs = " in pairs" if assignment.get("together", 1) == 2 else ""
    lines += [f"To mark one takes {hours(assignment['marking'])}, by our estimate: {hours(marking(assignment))} for a hundred students{pairs}.", ""]
    lines += ["| what | points | all of them for | half of them for |", "|---|---:|---|---|"]
    lines += [f"| {row['what']} | {row['points']} | {row['full']} | {row['half']} |" for row in rows]
    return "\n".join(lines)


def read_toml(name: str) -> dict:
    try:
        return tomllib.loads((COURSE / name).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{name}: {error}") from None


def blocks() -> dict[Path, dict[str, str]]:
    """Page -> name of a block -> what stands between `<!-- NAME:begin -->` and `<!-- NAME:end -->`."""
    try:
        return {COURSE / "README.md": {"questions": questions_table()},
                COURSE / "exercises.md": {"exercises": exercises_table(), "inputs": inputs_table()},
                COURSE / "plans.md": {name: made for plan in read_toml("plans.toml")["plan"]
                                      for name, made in ((plan["name"], plan_table(plan)), (f"{plan['name']}, deadlines", deadlines_table(plan)))},
                COURSE / "assignments.md": {each["name"]: rubric_table(each) for each in read_toml("assignments.toml")["assignment"]}}
    except KeyError as error:
        raise CourseError(f"plans.toml or assignments.toml lacks {error}") from None


def made() -> Iterator[tuple[Path, str]]:
    """The pages and what they should hold."""
    for page, parts in blocks().items():
        text = page.read_text(encoding="utf-8")
        for name, block in parts.items():
            text = generated.between(text, f"<!-- {name}:begin -->", f"<!-- {name}:end -->", block, page.name)
        yield page, text


def main() -> int:
    return generated.run(generated.parser(__doc__).parse_args(), made)


if __name__ == "__main__":
    sys.exit(main())
