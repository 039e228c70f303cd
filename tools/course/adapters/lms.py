"""How Moodle and Canvas name what they hand over."""
import re


def student_of(name: str) -> str:
    """Moodle's 'Ada Lovelace_123_assignsubmission_file', Canvas' 'lovelaceada_LATE_123_456_kernel.cuh', and plain names."""
    if moodle := re.fullmatch(r"(.+?_\d+)_assignsubmission_\w+?_?", name):
        return moodle[1]
    stem = re.sub(r"\.(cuh|cu|txt|zip)$", "", name)
    if canvas := re.fullmatch(r"([^_]+)(?:_LATE)?_(\d+)_\d+_.+", stem):
        return f"{canvas[1]}_{canvas[2]}"
    return stem


def of_a_student(names: list[str]) -> list[str]:
    """Without what a Mac or git puts there."""
    return [name for name in names if not re.search(r"(^|/)(\.|__MACOSX/)", name)]


def zips_in(names: list[str]) -> list[str]:
    """Moodle makes a folder for each student, in which the zip lies."""
    return [name for name in of_a_student(names) if name.endswith(".zip")]
