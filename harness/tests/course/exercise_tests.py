"""An exercise is what it says it is.   exercise_tests.py NAME [unittest arguments]; $LADDER is the built program.

What it begins with compiles and fails for the stated reason, the solution passes, ways around it are refused, and neither the task
nor the first two hints give it away.
"""
from __future__ import annotations

import difflib
import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "harness" / "course"))
import exercises  # noqa: E402
from exercises import Exercise, Verdict  # noqa: E402

EXERCISE: Exercise
FEWEST_TOKENS = 4  # of a piece of code that gives an answer away


def tokens(code: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", "\n".join(line.split("//")[0] for line in code.splitlines()))


def answers_of(start: str, rung: str) -> list[str]:
    """The pieces of code that a student has to find."""
    given, wanted = tokens(start), tokens(rung)
    runs = difflib.SequenceMatcher(None, given, wanted, autojunk=False).get_opcodes()
    pieces = [wanted[j1:j2] for tag, _, _, j1, j2 in runs if tag != "equal"]
    return ["".join(piece) for piece in pieces if len(piece) >= FEWEST_TOKENS]


class AnExercise(unittest.TestCase):
    def judged(self, text: str, given: str, reason: str) -> Verdict:
        verdict = EXERCISE.judge(text, given)
        self.assertEqual(verdict.reason, reason, verdict.text)
        self.assertEqual(verdict.passed, reason == "passed")
        return verdict

    def test_its_page(self) -> None:
        self.assertTrue(EXERCISE.task.startswith(f"# {EXERCISE.title}\n"))
        for part in ("\nRead: ", "\nWhat counts: "):
            self.assertIn(part, EXERCISE.task)
        self.assertTrue(5 <= EXERCISE.minutes <= 180)
        paths = re.findall(r"`([\w./]+/[\w./]+\.\w+)`", EXERCISE.task)
        self.assertTrue(paths)
        for path in paths:
            self.assertTrue((ROOT / path).is_file(), path)

    def test_neither_page_nor_early_hints_give_it_away(self) -> None:
        self.assertEqual(len(EXERCISE.hints), 3)
        told = "".join(tokens(" ".join([EXERCISE.task, *EXERCISE.hints[:2]])))
        for edit in EXERCISE.data.get("blank", []) + EXERCISE.data.get("bug", []):
            for answer in answers_of(edit["start"], edit["rung"]):
                self.assertNotIn(answer, told)
        if EXERCISE.kind == "predict":
            for seed in range(len(EXERCISE.data["shapes"])):
                for number in EXERCISE.truth(str(seed)).values():
                    self.assertNotIn(str(number), told)

    def test_what_it_begins_with_fails_for_the_stated_reason(self) -> None:
        if EXERCISE.kind == "fill":
            given = EXERCISE.skeleton()
            self.judged(given, given, EXERCISE.data["fails"])
        elif EXERCISE.kind == "hunt":
            for index, bug in enumerate(EXERCISE.data["bug"]):
                with self.subTest(bug=index + 1):
                    given = EXERCISE.with_bug(index)
                    self.judged(given, given, bug["fails"])
        else:
            self.judged(EXERCISE.skeleton(), "", "unanswered")

    def test_the_solution_passes(self) -> None:
        self.judged(EXERCISE.solution(), EXERCISE.skeleton(), "passed")
        for index in range(len(EXERCISE.data.get("bug", []))):
            self.assertIsNone(EXERCISE._outside(EXERCISE.solution(), EXERCISE.with_bug(index)))

    def test_ways_around_it_are_refused(self) -> None:
        holes = EXERCISE.loopholes()
        if EXERCISE.kind != "predict":
            self.assertTrue(holes)
        for hole, text, given in holes:
            with self.subTest(hole["what"]):
                self.judged(text, given, hole["refused"])

    def test_the_same_ways_around_every_exercise_of_its_kind(self) -> None:
        given = EXERCISE.skeleton()
        if EXERCISE.kind == "fill":
            for old, new in (("}  // namespace\n", "\n}  // namespace\n"), ("constexpr", "const"), (f"{exercises.END}\n", "\n")):
                self.judged(given.replace(old, new, 1), given, "outside")
        elif EXERCISE.kind == "hunt":
            longer = given.replace("namespace {\n", "namespace {\n" + "// mine\n" * (EXERCISE.data["most_lines"] + 1), 1)
            self.judged(longer, given, "too_many_lines")
        else:
            shapes = [EXERCISE.truth(str(seed)) for seed in range(12)]
            mine = EXERCISE.truth("")
            other = next(truth for truth in shapes if truth != mine)
            answers = "\n".join(f"{name} = {number}" for name, number in other.items())
            self.judged(answers, "", "wrong_number")

    def test_a_seed_chooses_and_keeps_to_its_choice(self) -> None:
        if EXERCISE.kind == "fill":
            return
        skeletons = [EXERCISE.skeleton(f"student {i}") for i in range(24)]
        self.assertEqual(skeletons, [EXERCISE.skeleton(f"student {i}") for i in range(24)])
        self.assertEqual(len(set(skeletons)), len(EXERCISE.data["bug" if EXERCISE.kind == "hunt" else "shapes"]))


if __name__ == "__main__":
    EXERCISE = Exercise(exercises.FOLDER / sys.argv.pop(1))
    unittest.main()
