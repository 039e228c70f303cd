"""An exercise is what it says it is.   python3 -m tools.tests.course.exercise_tests NAME | all [unittest arguments]; $LADDER is the built program.

On paper: its page is whole, neither page nor early hints give it away, its edits fit the rung, its solution is the rung.
In earnest, for one that is named: what it begins with compiles and fails for the stated reason, the solution passes, ways around it are
refused for theirs.
"""
from __future__ import annotations

import difflib
import os
import re
import resource
import sys
import unittest

from tools import results
from tools.course import cost, exercises
from tools.course.exercises import Exercise
from tools.paths import ROOT

EXERCISES: list[Exercise] = []
FEWEST_TOKENS = 4  # of a piece of code that gives an answer away
FEWEST_SIGNS = 20  # of one between two rungs, where a name or a type may be told
MOST_S = 30  # of a core, from a saved file to the verdict: the dearest take 10 s on the clock of two cores, which are 20, and a slower machine takes more


def used_s() -> float:
    """Of the processor, by all that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tokens(code: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", "\n".join(line.split("//")[0] for line in code.splitlines()))


def answers_of(start: str, rung: str) -> list[str]:
    """The pieces of code that a student has to find."""
    given, wanted = tokens(start), tokens(rung)
    runs = difflib.SequenceMatcher(None, given, wanted, autojunk=False).get_opcodes()
    pieces = [wanted[j1:j2] for tag, _, _, j1, j2 in runs if tag != "equal"]
    return ["".join(piece).strip("(){};,") for piece in pieces if len(piece) >= FEWEST_TOKENS]


def each(*kinds: str):
    """A test of one exercise becomes one of all of these kinds."""
    def of_all(test):
        def run(self: unittest.TestCase) -> None:
            for exercise in EXERCISES:
                if exercise.kind in (kinds or exercises.KINDS):
                    with self.subTest(exercise.name):
                        test(self, exercise)
        return run
    return of_all


class OnPaper(unittest.TestCase):
    def refused(self, exercise: Exercise, text: str, reason: str) -> None:
        verdict = exercise.judge(text, exercise.skeleton())
        self.assertEqual((verdict.passed, verdict.reason), (False, reason), verdict.text)

    @each()
    def test_its_page(self, exercise: Exercise) -> None:
        self.assertTrue(exercise.task.startswith(f"# {exercise.title}\n"))
        for part in ("\nRead: ", "\nWhat counts: "):
            self.assertIn(part, exercise.task)
        self.assertTrue(5 <= exercise.minutes <= 180)
        paths = re.findall(r"`([\w./]+/[\w./]+\.\w+)`", exercise.task)
        self.assertTrue(paths)
        for path in paths:
            self.assertTrue((ROOT / path).is_file(), path)

    @each()
    def test_neither_page_nor_early_hints_give_it_away(self, exercise: Exercise) -> None:
        self.assertEqual(len(exercise.hints), 3)
        told = "".join(tokens(" ".join([exercise.task, *exercise.hints[:2]])))
        for edit in exercise.data.get("blank", []) + exercise.data.get("bug", []):
            for answer in answers_of(edit["start"], edit["rung"]):
                self.assertNotIn(answer, told)
        if exercise.free:
            for answer in answers_of(exercises.kernel_of(exercise.data["from"]), exercise.kernel()):
                if len(answer) >= FEWEST_SIGNS:
                    self.assertNotIn(answer, told)
        for question in exercise.data.get("question", []):
            if "value" in question:
                self.assertNotIn(question["value"].replace(" ", ""), told)
            else:
                self.assertNotIn(str(exercise.truth("")[question["name"]]), told)

    @each("predict")
    def test_a_formula_is_right_for_what_the_program_knows(self, exercise: Exercise) -> None:
        for question in exercise.data["question"]:
            for variant in exercises.rungs.named(exercise.rung).variants if "known" in question else ():
                names = {"BR": variant.br, "BC": variant.bc, "WARPS": variant.warps}
                self.assertEqual(exercises.number(question["value"], names), getattr(variant, question["known"]), variant.label)

    @each(*exercises.FREE)
    def test_it_leads_from_one_rung_to_another(self, exercise: Exercise) -> None:
        self.assertEqual(exercise.solution(), exercise.kernel())
        self.assertIn(exercise.data["from"], exercise.task)
        self.assertIn(exercise.rung, exercise.task)
        self.assertNotEqual(tokens(exercise.skeleton()), tokens(exercise.kernel()))
        self.assertTrue(exercise.loopholes())
        if exercise.kind == "open":
            self.assertIn(exercise.rung, exercise.data["beside"])
            self.assertTrue(all(map(exercises.rungs.find, exercise.data["beside"])))

    @unittest.skipUnless("LADDER_WHOLE" in os.environ, "counts two rungs for each such exercise, as .ci/nightly does")
    @each(*exercises.FREE)
    def test_what_it_begins_with_costs_more(self, exercise: Exercise) -> None:
        self.assertGreater(exercises.cost_of_rung(exercise.data["from"]).total, exercises.cost_of_rung(exercise.rung).total)

    def test_a_single_mma_does_not_pay_for_all_products(self) -> None:
        def products(mma: int) -> float:
            return cost.cost_of({"batch": 1, "heads": 1, "n": 512, "d": 128, "counters": {**dict.fromkeys(cost.COUNTERS, 0), "mma": mma}}).clocks["products"]

        self.assertGreater(products(1), 0.99 * products(0))
        self.assertLess(products(4 * 512 * 512 * 128 // cost.MMA_FLOP), products(0) / 5)

    @unittest.skipUnless("LADDER_WHOLE" in os.environ, "counts every rung beside an open exercise, as .ci/nightly does")
    def test_a_score_of_half_as_much_again_was_measured_faster(self) -> None:
        measured = {row["stage"]: float(row["tflops"]) for row in results.table("h200.csv")
                    if (row["n"], row["causal"], row["regime"], row["inputs"]) == ("8192", "0", "turns", "normal")}
        shown = {rung for exercise in EXERCISES for rung in exercise.data.get("beside", []) + [exercise.data.get("from", exercise.rung)]
                 if exercise.free}
        scores = {rung: exercises.cost_of_rung(rung).flop_per_clk for rung in shown}
        pairs = [(low, high) for low in shown for high in shown if scores[high] > 1.5 * scores[low]]
        for low, high in pairs:
            self.assertGreater(measured[high], measured[low], (low, high))
        self.assertTrue(pairs or all(exercise.kind != "open" for exercise in EXERCISES))

    @each("fill", "hunt")
    def test_the_solution_is_the_rung_or_cures_it(self, exercise: Exercise) -> None:
        right = exercise.cured(exercise.kernel())
        self.assertEqual(tokens(exercise.solution()), tokens(right))
        given = [exercise.skeleton()] if exercise.kind == "fill" else [exercise.with_bug(i) for i in range(len(exercise.data["bug"]))]
        for skeleton in given:
            self.assertNotEqual(tokens(skeleton), tokens(right))
            self.assertIsNone(exercise._outside(exercise.solution(), skeleton))
        self.assertTrue(exercise.loopholes())

    @each("predict")
    def test_what_is_counted_is_right_and_another_student_s_numbers_are_not(self, exercise: Exercise) -> None:
        self.assertTrue(exercise.judge(exercise.solution(), "").passed)
        self.refused(exercise, exercise.skeleton(), "unanswered")
        others = (exercise.truth(str(seed)) for seed in range(12))
        other = next(truth for truth in others if truth != exercise.truth(""))
        self.refused(exercise, "\n".join(f"{name} = {number}" for name, number in other.items()), "wrong_number")

    @each("fill")
    def test_a_change_outside_of_the_blanks_is_refused(self, exercise: Exercise) -> None:
        given = exercise.skeleton()
        for old, new in (("}  // namespace\n", "\n}  // namespace\n"), ("constexpr", "const"), (f"{exercises.END}\n", "\n")):
            self.refused(exercise, given.replace(old, new, 1), "outside")

    @each("hunt")
    def test_a_hunt_is_no_rewriting(self, exercise: Exercise) -> None:
        lines = "// mine\n" * (exercise.data["most_lines"] + 1)
        self.refused(exercise, exercise.skeleton().replace("namespace {\n", "namespace {\n" + lines, 1), "too_many_lines")

    @each("hunt", "predict")
    def test_a_seed_chooses_and_keeps_to_its_choice(self, exercise: Exercise) -> None:
        skeletons = [exercise.skeleton(f"student {i}") for i in range(24)]
        self.assertEqual(skeletons, [exercise.skeleton(f"student {i}") for i in range(24)])
        self.assertEqual(len(set(skeletons)), len(exercise.data["bug" if exercise.kind == "hunt" else "shapes"]))


class InEarnest(unittest.TestCase):
    def setUp(self) -> None:
        self.exercise = EXERCISES[0]
        if self.exercise.kind == "predict":
            self.skipTest("no kernel to compile")
        if self.exercise.free:
            exercises.rows_of(self.exercise.rung)  # counted once, and kept

    def judged(self, text: str, given: str, reason: str) -> None:
        seconds = -used_s()
        verdict = self.exercise.judge(text, given)
        seconds += used_s()
        self.assertLess(seconds, MOST_S, "to wait for a verdict")
        self.assertEqual((verdict.passed, verdict.reason), (reason == "passed", reason), verdict.text)

    def test_what_it_begins_with_fails_for_the_stated_reason(self) -> None:
        if self.exercise.kind != "hunt":
            given = self.exercise.skeleton()
            self.judged(given, given, self.exercise.data["fails"])
            return
        for index, bug in enumerate(self.exercise.data["bug"]):
            with self.subTest(bug=index + 1):
                given = self.exercise.with_bug(index)
                self.judged(given, given, bug["fails"])

    def test_the_solution_passes(self) -> None:
        self.judged(self.exercise.solution(), self.exercise.skeleton(), "passed")

    def test_ways_around_it_are_refused(self) -> None:
        for hole, text, given in self.exercise.loopholes():
            with self.subTest(hole["what"]):
                self.judged(text, given, hole["refused"])


if __name__ == "__main__":
    name = sys.argv.pop(1)
    EXERCISES = exercises.all_exercises() if name == "all" else [Exercise(exercises.FOLDER / name)]
    unittest.main(defaultTest=["OnPaper"] if name == "all" else None)
