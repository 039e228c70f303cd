"""A class of a hundred is graded right, in the time that a lecturer waits, and leaves everything as it was."""
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tools.course import exercises
from tools.paths import ROOT
from tools.tests.course import fake_class

STUDENTS = 100
CORES = 2  # on which it takes at most 300 s where one check takes 5 s of a core
MOST_CHECKS = 1.5 * STUDENTS  # the same for any machine: by the time that one check takes there


def used_s() -> float:
    """Of the processor, by all that has ended. What a busy machine takes longer for is not its time."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def state(exercise: exercises.Exercise) -> dict[str, bytes]:
    """What a kernel is judged with and by. Elsewhere in the repository somebody may be at work meanwhile."""
    folders = (exercise.folder, exercises.rungs.named(exercise.rung).path, ROOT / "common")
    return {str(file): file.read_bytes() for folder in folders for file in folder.rglob("*") if file.is_file()}


class AClass(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.home = Path(folder.name)
        self.exercise = exercises.Exercise(exercises.FOLDER / fake_class.EXERCISE)

    def graded(self, folder: Path, *words: str) -> list[dict]:
        file = self.home / "marks.json"
        run = subprocess.run([sys.executable, "-B", "-m", "tools.course.grade", str(folder), "--exercise", self.exercise.name,
                              "--json", str(file), *words], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        print(run.stdout)
        return json.loads(file.read_text())["submissions"]

    def test_a_hundred(self) -> None:
        victim = self.home / "victim"
        victim.write_text("mine")
        victim.chmod(0o666)
        members = {member.student: member for member in fake_class.members(self.exercise, str(victim), STUDENTS)}
        self.assertEqual(len(members), STUDENTS)
        handed_in, again = self.home / "in", self.home / "again"
        for folder, chosen in ((handed_in, members), (again, list(members)[-4:] + ["hole_0", "wrong"])):
            for name in chosen:
                (folder / name).mkdir(parents=True)
                (folder / name / "kernel.cuh").write_text(members[name].text)
        once_s = -used_s()
        exercises.run_ladder("try", str(exercises.rungs.named(self.exercise.rung).kernel), "--like", self.exercise.rung)
        once_s += used_s()
        before, began, seconds = state(self.exercise), time.monotonic(), -used_s()
        marked = self.graded(handed_in)
        wall = time.monotonic() - began
        seconds += used_s()
        print(f"{seconds / CORES:.0f} s of {CORES} cores, {wall:.0f} s on the clock with {os.cpu_count()}; one check takes {once_s:.1f} s of a core")
        for each in marked:
            member = members[each["student"]]
            with self.subTest(each["student"]):
                self.assertEqual((each["reason"], each["score"]), (member.reason, 100 if member.reason == "passed" else 0), each["said"])
                self.assertIn(member.says, each["said"])
        self.assertEqual([each["student"] for each in marked], sorted(members))
        self.assertEqual(state(self.exercise), before)
        if fake_class.isolated():
            self.assertEqual(victim.read_text(), "mine")
        self.assertLess(seconds, MOST_CHECKS * once_s)
        # The same submissions among others, and one at a time.
        once = {each["student"]: each for each in marked}
        for each in self.graded(again, "--jobs", "1"):
            self.assertEqual(each, once[each["student"]])


if __name__ == "__main__":
    unittest.main()
