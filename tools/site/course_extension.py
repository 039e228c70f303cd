"""The course's pages: a task with its hints folded, what a student begins with, the exercises at the end of a chapter,
and on a page of their own, for instructors, the answers. All of it comes from course/exercises; nothing is written
twice."""
from __future__ import annotations

import difflib
import os
import re
import textwrap
from pathlib import Path

from sphinx.errors import ExtensionError

from tools import rungs
from tools.course import exercises
from tools.course.exercises import CourseError, Exercise
from tools.paths import ROOT

LIST, ANSWERS = "course/exercises", "course/answers"
LEVELS = ("a question", "where to look", "nearly the answer")


def task_page(exercise: Exercise) -> str:
    """As a document: no ending."""
    return str((exercise.folder / "task").relative_to(ROOT))


def number(exercise: Exercise) -> str:
    return exercise.name.partition("_")[0]


def link(exercise: Exercise, page: str) -> str:
    return f"[{number(exercise)}: {exercise.title}]({os.path.relpath(ROOT / task_page(exercise), (ROOT / page).parent)}.md)"


def fenced(code: str) -> str:
    return f"```cuda\n{code.rstrip()}\n```"


def folded(summary: str, text: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def table(of: list[Exercise], page: str) -> str:
    rows = [f"| {link(exercise, page)} | {exercise.kind} | {exercise.minutes} |" for exercise in of]
    return "\n".join(["| exercise | kind | minutes |", "|---|---|---:|", *rows])


def begins_with(exercise: Exercise, around: int = 3) -> str:
    """What stands in the student's file, as far as it is the same for everybody: the blanks, each with the lines around
    it."""
    if "from" in exercise.data:
        rung = rungs.named(exercise.data["from"])
        chapter = os.path.relpath(rung.path / "README.md", exercise.folder)
        return f"## What you begin with\n\nThe whole kernel of [{rung.name}]({chapter}#the-whole-kernel)."
    if exercise.kind != "fill":
        return ""
    lines = exercise.skeleton().split("\n")
    starts = [at for at, line in enumerate(lines) if exercises.BEGIN in line]
    ends = [at for at, line in enumerate(lines) if exercises.END in line]
    shown, last = [], -1
    for start, end in zip(starts, ends):
        first = max(start - around, last + 1)
        shown += [*(["    // ..."] if shown and first > last + 1 else []), *lines[first:end + around + 1]]
        last = end + around
    return "\n".join(["## What you begin with", "", fenced("\n".join(shown))])


def linked(text: str, page: str) -> str:
    """A path between backticks that the site has a page of leads there: a kernel to the end of its chapter."""
    def to(match: re.Match) -> str:
        path, anchor = ROOT / match[1], ""
        if path.name == "kernel.cuh":
            path, anchor = path.with_name("README.md"), "#the-whole-kernel"
        if path.suffix != ".md" or not path.is_file():
            return match[0]
        return f"[{match[0]}]({os.path.relpath(path, (ROOT / page).parent)}{anchor})"
    return re.sub(r"`([\w./]+/[\w./]+\.\w+)`", to, text)


def task(exercise: Exercise, text: str) -> str:
    """A task as the site shows it."""
    page = task_page(exercise)
    rung = rungs.named(exercise.rung)
    head, _, rest = text.partition("\n")
    chapter = os.path.relpath(rung.path / "README.md", exercise.folder)
    about = (f"*{exercise.kind.capitalize()}*, about {exercise.minutes} minutes, with [{rung.name}]({chapter}). "
             f"To begin: `./ladder learn start {number(exercise)}`.")
    if exercise.kind == "hunt":
        about += f" [What the inputs are](../../{Path(LIST).name}.md#what-the-inputs-are) that a check names."
    hints = "\n\n".join(folded(f"Hint {level}: {LEVELS[level - 1]}", hint) for level, hint in enumerate(exercise.hints, 1))
    parts = [f"# {number(exercise)}: {head.removeprefix('# ')}", about, linked(rest.strip(), page), begins_with(exercise), "## Hints", hints]
    return "\n\n".join(filter(None, parts)) + "\n"


def changes(before: str, after: str) -> str:
    """The lines that differ, as a diff without its head."""
    lines = list(difflib.unified_diff(exercises.normal(before), exercises.normal(after), lineterm="", n=99))[2:]
    return "```diff\n" + "\n".join("" if line.startswith("@@") else line for line in lines).strip("\n") + "\n```"


def answer(exercise: Exercise) -> str:
    """What is right, for every seed, and which ways around it are refused."""
    parts = [f"### {number(exercise)}: {exercise.title}"]
    if exercise.kind == "fill":
        parts += [fenced("\n// ...\n".join(textwrap.dedent(blank["rung"]).rstrip("\n") for blank in exercise.data["blank"]))]
    elif exercise.kind == "hunt":
        parts += [f"At most {exercise.data['most_lines']} lines. A seed chooses one of {len(exercise.data['bug'])} faults:"]
        parts += [changes(bug["start"], bug["rung"]) for bug in exercise.data["bug"]]
    elif exercise.kind == "predict":
        rows = [f"| {question['name']} | {question['ask'].strip()} | {question['because'].strip()} |" for question in exercise.data["question"]]
        parts += ["\n".join(["| | asked | right |", "|---|---|---|", *rows]),
                  f"A seed chooses one of {len(exercise.data['shapes'])} shapes; `./ladder learn --seed NAME solution {number(exercise)} --give-up` has a student's numbers."]
        if besides := exercise.data.get("yourself"):
            parts += [f"For yourself: {besides}"]
    else:
        rung = rungs.named(exercise.rung)
        parts += [f"Any kernel that the check lets pass. One of them is that of [{rung.name}]({os.path.relpath(rung.path / 'README.md', ROOT / 'course')}#the-whole-kernel)."]
    if holes := exercise.data.get("loophole", []):
        parts += ["Refused: " + "; ".join(f"{hole['what'].rstrip('.')} (`{hole['refused']}`)" for hole in holes) + "."]
    return "\n\n".join(parts)


def by_rung() -> list[tuple[rungs.Rung, list[Exercise]]]:
    of: dict[str, list[Exercise]] = {}
    for exercise in exercises.all_exercises():
        of.setdefault(rungs.named(exercise.rung).name, []).append(exercise)
    return [(rung, of[rung.name]) for rung in rungs.known() if rung.name in of]


def read_source(app, docname: str, source: list[str]) -> None:
    try:
        if exercise := next((each for each in exercises.all_exercises() if task_page(each) == docname), None):
            source[0] = task(exercise, source[0])
        elif docname == LIST:
            pages = "\n".join(f"/{task_page(exercise)}" for exercise in exercises.all_exercises())
            source[0] += f"\n```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{pages}\n```\n"
        elif docname == ANSWERS:
            for rung, of in by_rung():
                source[0] += f"\n## {rung.name}\n\n" + "\n\n".join(map(answer, of)) + "\n"
        else:
            of = next((of for rung, of in by_rung() if docname == f"{rung.directory}/README"), [])
            if of:
                whole = "\n## The whole kernel\n"  # which site_extension has put at the end
                section = f"\n## Exercises\n\n{table(of, docname)}\n"
                source[0], found = re.subn(whole, lambda _: section + whole, source[0])
                if found != 1:
                    raise ExtensionError(f"{docname} has {found} places for its exercises, wants 1")
    except (CourseError, rungs.RungsError, KeyError) as error:
        raise ExtensionError(f"{docname}: {error!r}") from None


def setup(app):
    app.connect("source-read", read_source, priority=900)  # after site_extension's
    return {"parallel_read_safe": True}
