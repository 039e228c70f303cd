"""The course's pages: plans and rubrics name what there is, their minutes and points add up, a lecturer finds every
report explained, and every command is one. $LADDER is the built program."""
from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

from tools import rungs
from tools.course import exercises
from tools.paths import ROOT
from tools.site import course

KNOWN = {exercise.name: exercise for exercise in exercises.all_exercises()}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def minutes(said: str) -> int:
    hour, minute = re.fullmatch(r"(?:(\d+) h )?(\d+)(?: min)?", said).groups()
    return 60 * int(hour or 0) + int(minute)


class Plans(unittest.TestCase):
    def plan(self, name: str) -> tuple[list[list[str]], str]:
        text = (course.COURSE / "plans.md").read_text(encoding="utf-8")
        part = text.partition(f"<!-- {name}:begin -->")[2].partition(f"<!-- {name}:end -->")[0]
        return [cells(line) for line in part.splitlines() if line.startswith("|")][2:], part

    def test_minutes_add_up_and_every_exercise_is_one(self) -> None:
        for plan in course.read_toml("plans.toml")["plan"]:
            with self.subTest(plan["name"]):
                *weeks, in_all = self.plan(plan["name"])[0]
                self.assertEqual([week[0] for week in weeks], [str(n) for n in range(1, len(plan["week"]) + 1)])
                named = 0
                for week in weeks:
                    tasks = re.findall(r"\(exercises/(\w+)/task\.md\)", week[4])
                    self.assertEqual(int(week[5] or 0), sum(KNOWN[name].minutes for name in tasks), week[0])
                    self.assertTrue(tasks or len(week[4]) > 5, week[0])  # a lab has something to do
                    named += len(tasks)
                self.assertGreater(named, 5)
                self.assertEqual([int(cell) for cell in in_all[3:6]], [sum(int(week[3]) for week in weeks), named, sum(int(week[5] or 0) for week in weeks)])
                in_class, reading, work = map(minutes, re.search(r"In class ([^,]+),.*reading ([^;]+); exercises (\d[^,]+),", self.plan(plan["name"])[1]).groups())
                self.assertEqual([in_class, reading, work], [len(weeks) * (plan["lecture"] + plan["lab"]), int(in_all[3]), int(in_all[5])])

    def test_the_whole_of_a_plan(self) -> None:
        text = (course.COURSE / "plans.md").read_text(encoding="utf-8")
        for plan in course.read_toml("plans.toml")["plan"]:
            part = text.partition(f"<!-- {plan['name']}, deadlines:begin -->")[2].partition("<!--")[0]
            whole, *parts = (minutes(said) for said in re.findall(r"\d+ h \d+|\d+ min", part.partition("In all ")[2]))
            self.assertEqual(whole, sum(parts))
            self.assertGreaterEqual(len(parts), 4)
            self.assertEqual(sum(int(row[-1].removesuffix(" %")) for row in map(cells, part.splitlines()[3:]) if row[-1].endswith("%")), 100)
            for anchor in re.findall(r"assignments\.md#([\w-]+)", part):
                self.assertIn(anchor, [re.sub(r"[^a-z0-9 ]", "", line.lower()).strip().replace(" ", "-")
                                       for line in (course.COURSE / "assignments.md").read_text(encoding="utf-8").splitlines() if line.startswith("## ")])

    def test_how_many_have_the_same(self) -> None:
        said = " ".join((course.COURSE / "answers.md").read_text(encoding="utf-8").split())
        bugs = {len(each.data["bug"]) for each in KNOWN.values() if each.kind == "hunt"}
        shapes = [len(each.data["shapes"]) for each in KNOWN.values() if each.kind == "predict"]
        self.assertIn(f"one of {min(bugs)} to {max(bugs)} bugs in a hunt, and one of {min(shapes)} to {max(shapes)} shapes", said)

    def test_what_a_task_says_to_read_has_been_read(self) -> None:
        chapters = {f"{rung.directory}/README.md": rung.name for rung in rungs.known()}
        named = 0
        for plan in course.read_toml("plans.toml")["plan"]:
            read: set[str] = set()
            for number, week in enumerate(plan["week"], 1):
                read |= set(week["read"])
                for exercise in course.exercises_of(week):
                    pages = {chapters.get(path, path.removesuffix(".md")) for path in re.findall(r"`([\w./]+\.md)`", exercise.task)}
                    named += len(pages)
                    self.assertEqual(pages - read, set(), f"{plan['name']}, week {number}, {exercise.name}")
        self.assertGreater(named, 20)

    def test_prose_is_what_is_read(self) -> None:
        text = "two words\n```bash\ncode\n```\n<!-- numbers\nx\n--> [three](../a/link.md)<details><summary>All rows: all</summary>1 2 3</details> four"
        self.assertEqual(course.prose_of(text).split(), ["two", "words", "[three", "four"])
        self.assertTrue(all(5 <= course.page(rung.name).minutes <= 240 for rung in rungs.known()))

    def refused(self, old: str, new: str, said: str, file: str = "course/plans.toml") -> None:
        """A changed data file, and what the program then says."""
        text = (ROOT / file).read_text(encoding="utf-8")
        self.assertIn(old, text)
        read = Path.read_text

        def changed(path: Path, *arguments, **options) -> str:
            return text.replace(old, new, 1) if path == ROOT / file else read(path, *arguments, **options)

        errors = io.StringIO()
        with mock.patch.object(Path, "read_text", changed), mock.patch.object(sys, "argv", ["course.py", "--check"]), contextlib.redirect_stderr(errors):
            self.assertEqual(course.main(), 2)
        self.assertIn(said, errors.getvalue())

    def test_what_is_not_there_is_refused(self) -> None:
        week = course.read_toml("plans.toml")["plan"][0]["week"][0]
        exercise, rung, show = week["exercises"][0], next(name for name in week["read"] if name in rungs.by_name()), week["show"]
        self.refused(f'"{exercise}"', '"none_such"', f"There is no exercise none_such; there are: {next(iter(KNOWN))}")
        self.refused(f'"{rung}"', '"none_such"', "there is no rung none_such")
        self.refused(f'"{show}"', f'"{show} none_such"', "There is no stage 'none_such'")
        self.refused("most = 330", "most = 0", "minutes, and lab and home have 90")
        self.refused("points = 40", "points = 41", "assignment 1: 101 points, not 100", "course/assignments.toml")
        self.refused("[[plan]]", "[[plan", "plans.toml: ")
        self.refused('"assignment 3"', '"assignment 9"', "assignments.toml has none of that name, only assignment 1")
        self.refused("due = 6", "due = 7", "handed out after week 5 and in by week 7 of 6")
        self.refused("out = 4 ", "out = 3 ", "02b_scrambled is not done by week 3")
        self.refused("weight = 30", "weight = 40", "its assignments are 110 % of the grade, not 100")
        self.refused("  peaky,  ", "  peaky, // x\n  other,\n  // ", "an input set without a word about it", "harness/problem/inputs.hpp")


class Words(unittest.TestCase):
    def test_every_report_has_its_question(self) -> None:
        table = [cells(line) for line in (course.COURSE / "teaching.md").read_text(encoding="utf-8").splitlines() if line.startswith("|")]
        explained = {name for row in table if len(row) == 3 for name in re.findall(r"`([\w-]+)`", row[0])}
        reports = (ROOT / "common" / "emulator" / "report.cpp").read_text(encoding="utf-8").partition("NAMES[] = {")[2].partition("};")[0]
        failures = (ROOT / "harness" / "verify" / "check.hpp").read_text(encoding="utf-8").partition("enum class FailureKind {")[2].partition("};")[0]
        known = set(re.findall(r'"([a-z-]+)"', reports)) | set(re.findall(r"^  (\w+),", failures, re.M))
        self.assertGreater(len(known), 30)
        targets = {exercise.data["fails"] for exercise in KNOWN.values() if exercise.free}
        self.assertEqual(explained, (known | targets) - {"emulator_report"})  # which is one of the others

    def test_what_a_task_asks_besides_has_an_answer(self) -> None:
        asked = {name for name, exercise in KNOWN.items() if "For yourself" in exercise.task}
        self.assertEqual(asked, {name for name, exercise in KNOWN.items() if "yourself" in exercise.data})
        for name in asked:
            self.assertIn("# For yourself: ", KNOWN[name].solution())

    def test_commands_are_there(self) -> None:
        door = (ROOT / "ladder").read_text(encoding="utf-8")
        words = " ".join(re.findall(r"^readonly words=\(([^)]*)", door, re.M)).split()
        targets = " ".join(re.findall(r"^(?:TARGETS|SANITIZERS) := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)).split()
        seen = 0
        for page in course.COURSE.glob("*.md"):
            for tool, word in re.findall(r"(?<![\w/])(\./ladder|make) ([a-z]+)\b", " ".join(re.findall(r"`[^`]+`|^```.*?^```", page.read_text(encoding="utf-8"), re.M | re.S))):
                self.assertIn(word, words if tool == "./ladder" else targets, page.name)
                seen += 1
        self.assertGreater(seen, 10)

    def test_a_computer_room_gets_all_packages(self) -> None:
        functions = re.search(r"^find_python\(\).*?(?=^install_missing\(\))", (ROOT / "ladder").read_text(encoding="utf-8"), re.M | re.S)
        assert functions
        # Where there is no program at all, and no Python.
        script = f"PATH=/nowhere\n{functions[0]}\nfind_python() {{ return 1; }}\nfor what in course docs-tests all; do missing_packages $what; done"
        needed = set(subprocess.run(["bash", "-c", script], capture_output=True, text=True).stdout.split()) | {"libjs-katex"}
        line = (course.COURSE / "teaching.md").read_text(encoding="utf-8").partition("--no-install-recommends ")[2].partition("```")[0]
        tests_of_the_site = {"chromium", "chromium-driver", "python3-selenium"}
        self.assertEqual(set(line.replace("\\\n", " ").split()), needed - tests_of_the_site | {"git"})

    def test_a_command_is_written_as_it_is_typed(self) -> None:
        pages = [*(rung.path / "README.md" for rung in rungs.known()), *(ROOT / "docs").rglob("*.md"), *course.COURSE.rglob("*.md"), ROOT / "README.md"]
        for page in pages:
            text = page.read_text(encoding="utf-8")
            self.assertEqual(re.findall(r"(?:^|`)ladder [a-z]+[^`\n]*", text, re.M), [], f"{page}: a student types ./ladder")


if __name__ == "__main__":
    unittest.main()
