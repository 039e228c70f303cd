"""What students handed in: their file for an exercise, out of a folder with a folder, a zip or a file of each."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tools.course import exercises
from tools.course.adapters import lms, zips
from tools.course.exercises import Exercise, Usage

MOST_BYTES = 1 << 20  # of a submitted file; a kernel has 20 KB
PROGRESS = "progress.json"
EXERCISES = {folder.name for folder in exercises.FOLDER.iterdir()}


@dataclass
class Submission:
    student: str
    file: str = ""  # as it lies in DIR
    text: str = ""
    problem: str = ""  # why there is nothing to judge
    unread: bool = False  # which is not the student's fault
    missing: bool = False  # there is no file that could be it
    progress: str = ""  # work/progress.json, which has the seed
    seed: str = ""
    result: dict = field(default_factory=dict)


class Unclear(Exception):
    """What is in the file, or whether there is one."""


class Missing(Unclear):
    """Nothing there could be it."""


class Several(Unclear):
    """Which file is meant: for the lecturer to ask, and no fault that marks are for."""


def printable(text: str) -> str:
    """A terminal takes no control characters from strangers."""
    return "".join(character if character == "\n" or character.isprintable() else "?" for character in text)


def decoded(data: bytes, name: str) -> str:
    if len(data) > MOST_BYTES:
        raise Unclear(f"{name} is larger than {MOST_BYTES >> 20} MiB, which no kernel is.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unclear(f"{name} is no text.") from None


def read(path: Path, most: int = MOST_BYTES + 1) -> bytes:
    """Of a regular file alone: a link may lead to somebody else's, and a pipe never ends."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.isfile(f"/proc/self/fd/{descriptor}"):
            raise Unclear(f"{path.name} is no file.")
        return file.read(most)


def suffixes_of(exercise: Exercise) -> tuple[str, ...]:
    return (Path(exercise.file_name).suffix, ".cu") if exercise.file_name.endswith(".cuh") else (Path(exercise.file_name).suffix,)


def the_one(names: list[str]) -> str:
    if len(names) > 1:
        raise Several(f"Which one? {', '.join(sorted(names)[:4])}. Leave one of them.")
    return names[0]


def chosen(names: list[str], exercise: Exercise) -> str:
    """Of the names in a student's folder or zip: the exercise's file in the exercise's folder, or the only one of that name, or the
    only one that could be it. What lies in another exercise's folder is that one's, as in a whole work/ that is handed in."""
    others = EXERCISES - {exercise.name}
    names = [name for name in lms.of_a_student(names) if not others & set(name.split("/")[:-1])]
    called = [name for name in names if name.rpartition("/")[2] == exercise.file_name]
    inside = [name for name in called if f"/{exercise.name}/" in f"/{name}"]
    likely = [name for name in names if name.endswith(suffixes_of(exercise))]
    if found := inside or called or likely:
        return the_one(found)
    raise Missing(f"There is no {exercise.file_name}.")


def take(submission: Submission, at: str, names: list[str], bytes_of: Callable[[str, int], bytes], exercise: Exercise) -> None:
    name = chosen(names, exercise)
    submission.file = f"{at}/{name}"
    submission.text = decoded(bytes_of(name, MOST_BYTES + 1), name)
    folder = name.rpartition("/")[0]  # the progress lies in the one above it
    progress = f"{folder.rpartition('/')[0]}/{PROGRESS}".lstrip("/")
    if folder and progress in names:  # one that cannot be read has no seed, and the kernel is judged all the same
        with contextlib.suppress(OSError, Unclear):
            submission.progress = bytes_of(progress, MOST_BYTES).decode(errors="replace")


def from_zip(submission: Submission, path: Path, at: str, exercise: Exercise) -> None:
    try:
        with zips.opened(read(path, zips.MOST_ZIPPED)) as (names, bytes_of):
            take(submission, at, names, bytes_of, exercise)
    except zips.Broken as error:
        raise Unclear(f"{path.name} cannot be unpacked: {error}.") from None


def from_folder(submission: Submission, path: Path, exercise: Exercise) -> None:
    def stop(error: OSError) -> None:
        raise error

    names = [str((Path(at) / name).relative_to(path)) for at, _, files in os.walk(path, onerror=stop) for name in files]
    try:
        take(submission, path.name, names, lambda name, most: read(path / name, most), exercise)
    except Missing:
        if not (inside := lms.zips_in(names)):
            raise
        from_zip(submission, path / the_one(inside), f"{path.name}/{inside[0]}", exercise)


def one(path: Path, exercise: Exercise) -> Submission:
    name = path.name.encode(errors="replace").decode()
    submission = Submission(lms.student_of(name), name)
    try:
        if path.is_symlink():
            raise Unclear(f"{path.name} is a link.")
        if path.is_dir():
            from_folder(submission, path, exercise)
        elif path.suffix == ".zip":
            from_zip(submission, path, path.name, exercise)
        else:
            submission.text = decoded(read(path), path.name)
    except Unclear as unclear:
        submission.problem, submission.unread = str(unclear), isinstance(unclear, Several)
        submission.missing = isinstance(unclear, Missing)
    except OSError as error:
        submission.problem, submission.unread = f"{submission.file} cannot be read: {error.strerror}.", True
    return submission


def submissions_in(folder: Path, exercise: Exercise) -> list[Submission]:
    """A folder that holds the exercise's file itself, or folders of exercises, is one submission, as an autograder finds it."""
    try:
        entries = sorted(path for path in folder.iterdir() if not path.name.startswith((".", "__MACOSX")))
    except OSError as error:
        raise Usage(f"{folder} cannot be read: {error.strerror}.") from None
    if {path.name for path in entries} & {exercise.file_name, *EXERCISES}:
        return [one(folder.resolve(), exercise)]
    taken = [path for path in entries if path.is_dir() or path.suffix in (*suffixes_of(exercise), ".zip")]
    if not taken:
        raise Usage(f"{folder} holds no submissions: neither folders of students nor {exercise.file_name}, zip or "
                    f"{' or '.join(suffixes_of(exercise))} files.\n  What it may look like: course/grading.md")
    found: dict[str, Submission] = {}
    for path in taken:
        submission = one(path, exercise)
        known = found.get(submission.student)
        if known and submission.missing:  # as Moodle's folder of what somebody typed online, beside the one of the file
            continue
        if known and not known.missing:
            known.problem = f"Handed in twice: {known.file} and {submission.file}. Leave one of them."
            known.unread = True
        else:
            found[submission.student] = submission
    return [found[student] for student in sorted(found)]
