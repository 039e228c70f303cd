"""`./ladder learn`, with the emulator's part played by a comparison with the solution, and once in earnest."""
from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools.course import exercises, learn
from tools.course.cost import Cost
from tools.course.exercises import Exercise, Verdict
from tools.paths import ROOT

ALL = exercises.all_exercises()
FILL, HUNT, PREDICT, CLIMB, OPEN = (next(each for each in ALL if each.kind == kind) for kind in exercises.KINDS)


def compared(exercise: Exercise, text: str, shown_as: str) -> Verdict:
    passed = exercises.normal(text) == exercises.normal(exercise.solution())
    cost = Cost(1000, {"products": 1.0 if passed else 1.0 + text.count("\n")}) if exercise.kind == "open" else None
    return Verdict(passed, "passed" if passed else "wrong_result", f"{shown_as} was compared", cost)


class Course(unittest.TestCase):
    def setUp(self) -> None:
        self.work = Path(tempfile.mkdtemp()) / "work"
        self.addCleanup(shutil.rmtree, self.work.parent)
        for patch in (mock.patch.dict(os.environ, LADDER_WORK=str(self.work)), mock.patch.object(Exercise, "_try", compared),
                      mock.patch.object(Exercise, "_compare", compared)):
            patch.start()
            self.addCleanup(patch.stop)

    def learn(self, *words: str, ends: int | None = None) -> str:
        """All that it says."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            code = learn.main(list(words))
        self.assertIn(ends, (None, code), said.getvalue())
        return said.getvalue()

    def refused(self, *words: str) -> str:
        with self.assertRaises(learn.Usage) as refusal:
            self.learn(*words)
        return str(refusal.exception)

    def file(self, exercise: Exercise) -> Path:
        return self.work / exercise.name / exercise.file_name

    def state(self, exercise: Exercise) -> dict:
        return json.loads((self.work / "progress.json").read_text())["exercises"][exercise.name]

    def test_from_the_first_to_the_second(self) -> None:
        said = self.learn(ends=0)
        self.assertIn(ALL[0].title, said)
        self.assertIn(str(self.file(ALL[0])), said)
        self.assertEqual(self.file(ALL[0]).read_text(), ALL[0].skeleton())
        said = self.learn("check", ends=1)
        self.assertIn("Not yet.", said)
        self.file(ALL[0]).write_text(ALL[0].solution())
        said = self.learn("check", ends=0)
        self.assertIn("Passed.", said)
        self.assertIn(ALL[1].name, said)
        self.assertEqual(self.state(ALL[0]) | {"passed": True, "checks": 2}, self.state(ALL[0]))
        self.assertIn(ALL[1].title, self.learn())
        self.assertRegex(self.learn("list"), rf"(?s){ALL[0].name}.*\[passed\].*> {ALL[1].name}.*\n1 of {len(ALL)} passed")

    def test_a_command_is_shown_on_one_line(self) -> None:
        for exercise in ALL:
            said = self.learn("start", exercise.name)
            for command in re.findall(r"`(\./ladder[^`]+)`", exercise.task):
                self.assertIn(" ".join(command.split()), said, exercise.name)

    def test_the_repository_is_left_alone(self) -> None:
        def tracked() -> str:
            return subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout

        before = tracked()
        for exercise in (FILL, HUNT, PREDICT, CLIMB, OPEN):
            self.learn("start", exercise.name)
        self.assertEqual(tracked(), before)
        ignored = subprocess.run(["git", "check-ignore", "work/x"], cwd=ROOT, capture_output=True)
        if (ROOT / ".git").exists():
            self.assertNotEqual(ignored.returncode, 1)  # not 0 alone: git reads no repository that is another user's, and ends with 128

    def test_three_hints_then_no_more(self) -> None:
        self.learn("start", FILL.name)
        for level in (1, 2, 3, 3):
            said = self.learn("hint")
            self.assertEqual([hint in said for hint in FILL.hints], [level > i for i in range(3)])
            self.assertEqual(self.state(FILL)["hints"], level)

    def test_a_solution_is_for_those_who_passed_or_gave_up(self) -> None:
        self.learn("start", FILL.name)
        self.assertIn("--give-up", self.refused("solution"))
        self.assertFalse(self.state(FILL)["gave_up"])
        said = self.learn("solution", "--give-up")
        for line in exercises.blanks_of(FILL.solution())[0].splitlines():
            self.assertIn(line, said)
        self.assertTrue(self.state(FILL)["gave_up"])
        self.assertIn("solution seen", self.learn("list"))
        self.learn("start", PREDICT.name)
        solution = self.learn("solution", "--give-up")
        self.assertTrue(PREDICT.judge(solution, "").passed, solution)

    def test_a_file_is_never_lost(self) -> None:
        self.learn("start", FILL.name)
        self.file(FILL).write_text("mine")
        self.learn("reset")
        self.assertEqual(self.file(FILL).read_text(), FILL.skeleton())
        self.file(FILL).write_text("mine too")
        self.learn("reset")
        self.assertEqual({(self.file(FILL).parent / name).read_text() for name in ("kernel.cuh.old", "kernel.cuh.old2")},
                         {"mine", "mine too"})
        self.file(FILL).unlink()
        self.assertIn("was gone", self.learn("check", ends=1))

    def test_what_was_written_survives_an_update_of_the_rung(self) -> None:
        self.learn("start", FILL.name)
        given = self.file(FILL).with_name(".given")
        older = given.read_text().replace("namespace {\n", "namespace {\n// an older line\n", 1)
        given.write_text(older)
        solved = exercises.with_blanks(older, exercises.blanks_of(FILL.solution()))
        self.file(FILL).write_text(solved)
        self.assertIn("carried over", self.learn("check", ends=0))
        self.assertEqual(self.file(FILL).read_text(), FILL.solution())
        self.assertEqual((self.file(FILL).parent / "kernel.cuh.old").read_text(), solved)

    def test_what_was_mended_survives_an_update_of_the_rung(self) -> None:
        self.learn("start", HUNT.name)
        older = HUNT.skeleton().replace("namespace {\n", "namespace {\n// an older line\n", 1)
        self.file(HUNT).with_name(".given").write_text(older)
        self.file(HUNT).write_text(HUNT.solution().replace("namespace {\n", "namespace {\n// an older line\n", 1))
        self.assertIn("carried over", self.learn("check", ends=0))
        self.assertEqual(self.file(HUNT).read_text(), HUNT.solution())

    def test_answers_survive_an_update_that_asks_for_the_same(self) -> None:
        self.learn("start", PREDICT.name)
        given, file = self.file(PREDICT).with_name(".given"), self.file(PREDICT)
        for older, said_then, code in (("# Behind each", "carried over", 0), (", d = 128", "begins anew", 1)):
            self.assertIn(older, PREDICT.skeleton())
            given.write_text(PREDICT.skeleton().replace(older, "# older"))
            file.write_text(PREDICT.solution().replace(older, "# older"))
            self.assertIn(said_then, self.learn("check", ends=code))
        self.assertEqual(file.read_text(), PREDICT.skeleton())

    def test_a_kernel_of_one_s_own_is_left_alone_by_an_update(self) -> None:
        self.learn("start", CLIMB.name)
        self.file(CLIMB).with_name(".given").write_text("an older rung")
        self.file(CLIMB).write_text(CLIMB.solution())
        self.learn("check", ends=0)
        self.assertEqual(self.file(CLIMB).read_text(), CLIMB.solution())

    def test_the_board_keeps_what_is_better_than_before(self) -> None:
        with mock.patch.object(exercises, "cost_of_rung", lambda rung: Cost(1000, {"products": 2.0})):
            self.assertIn(OPEN.data["beside"][0], self.learn("board"))
            self.learn("start", OPEN.name)
            worse = "//\n" * 9
            for text in (worse + "//\n", worse, worse + "//\n", OPEN.solution()):
                self.file(OPEN).write_text(text)
                self.learn("check")
            kept = {path.name: path.read_text() for path in self.file(OPEN).parent.glob("best*.cuh")}
            self.assertEqual(kept, {"best1.cuh": worse + "//\n", "best2.cuh": worse, "best3.cuh": OPEN.solution()})
            self.assertRegex(self.learn("board"), r"(?s) 1000  yours.*best3.cuh\n +500  .* 100  yours.*best2.cuh\n +91  yours")
            (self.work / "board.json").write_text("{")
            with self.assertRaisesRegex(exercises.CourseError, "board.json cannot be read"):
                self.learn("board")

    @contextlib.contextmanager
    def fake_card(self, rung: str):
        """A GPU, an nvcc and a ladder that play their parts; gives the folder in which `said` is what nvcc was asked for."""
        tools = self.work.parent / "bin"
        tools.mkdir(exist_ok=True)
        csv_of_bench = f"stage,tflops,gpu\\n{rung},400.0,Test card\\nyours,300.5,Test card\\n"
        for name, does in {"nvidia-smi": "echo 9.0", "nvcc": f'echo "$@" >{tools}/said; for last; do :; done; cp "$0" "$last"',
                           "ladder": f'[ "$1 $2" = "bench {rung}" ] || exit 9; for last; do :; done; printf "{csv_of_bench}" >"$last"'}.items():
            (tools / name).write_text(f"#!/bin/sh\n{does}\n")
            (tools / name).chmod(0o755)
        with mock.patch.dict(os.environ, PATH=f"{tools}:{os.environ['PATH']}"), mock.patch.object(exercises.rungs, "program", lambda: tools / "ladder"):
            yield tools

    @staticmethod
    def no_card():
        """Neither a GPU nor nvcc."""
        stack = contextlib.ExitStack()
        stack.enter_context(mock.patch.dict(os.environ, PATH="/nowhere"))
        stack.enter_context(mock.patch.object(shutil, "which", lambda name: None))
        return stack

    def test_times_are_taken_by_the_bench_beside_the_rung(self) -> None:
        self.assertIn("is not begun", self.refused("time", OPEN.name))
        self.assertIn("no kernel of your own", self.refused("time", FILL.name))
        self.learn("start", OPEN.name)
        with self.no_card(), self.assertRaisesRegex(exercises.NotHere, "a GPU and nvcc"):
            self.learn("time")
        with self.fake_card(OPEN.rung) as tools:
            self.learn("time", ends=0)
        self.assertIn("sm_90a", (tools / "said").read_text())
        self.assertIn(exercises.rungs.named(OPEN.rung).default.config, (self.file(OPEN).parent / "peer.cu").read_text())
        with mock.patch.object(exercises, "cost_of_rung", lambda rung: Cost(1000, {"products": 2.0})):
            self.assertIn(f"300.5 TFLOPS on Test card, {OPEN.rung} 400.0", self.learn("board"))

    def test_the_time_of_any_kernel(self) -> None:
        mine = self.work.parent / "mine.cuh"
        mine.write_text("// mine\n")
        self.assertIn(f"time {mine} --like 03", self.refused("time", str(mine)))
        self.assertIn("is not there", self.refused("time", str(mine) + "x", "--like", "03"))
        self.assertIn("is not there", self.refused("time", "--like", "03"))
        self.assertIn("There is no stage 'zz'", self.refused("time", str(mine), "--like", "zz"))
        self.assertIn("more than Q, K, V and O", self.refused("time", str(mine), "--like", "00"))
        self.assertIn("./ladder try FILE --like 03", self.refused("check", "--like", "03"))
        with self.no_card(), self.assertRaisesRegex(exercises.NotHere, "a GPU and nvcc"):
            self.learn("time", str(mine), "--like", "03")
        with self.fake_card(OPEN.rung) as tools:
            self.learn("time", str(mine), "--like", OPEN.rung, ends=0)
        made = Path((tools / "said").read_text().split()[-3]).parent
        self.assertEqual((made / "kernel.cuh").read_text(), "// mine\n")
        self.assertIn(exercises.rungs.named(OPEN.rung).default.config, (made / "peer.cu").read_text())
        self.assertEqual(made.parent, self.work)  # and nothing elsewhere
        with self.fake_card(CLIMB.rung):  # what the bench refuses
            self.learn("time", str(mine), "--like", OPEN.rung, ends=9)
        mine.write_bytes(b"\xff")
        self.assertIn("cannot be copied", self.refused("time", str(mine), "--like", "03"))

    def test_watching_ends_with_a_pass_unless_there_is_always_a_better_one(self) -> None:
        for exercise in (CLIMB, OPEN):
            self.learn("start", exercise.name)
            saved = []

            def save(_seconds: float) -> None:
                if len(saved) == 2:
                    raise KeyboardInterrupt
                saved.append(exercise.solution() if saved else "// not yet")
                self.file(exercise).write_text(saved[-1])
                os.utime(self.file(exercise), ns=(0, len(saved)))

            learner, said = learn.Learner(), io.StringIO()
            with mock.patch.object(learn.time, "sleep", save), contextlib.redirect_stdout(said):
                if exercise is OPEN:
                    with self.assertRaises(KeyboardInterrupt):
                        learner.watch(exercise)
                else:
                    self.assertEqual(learner.watch(exercise), 0)
            self.assertRegex(said.getvalue(), r"(?s)Not yet\..*Passed\.")

    def test_another_name_chooses_another_one(self) -> None:
        self.learn("start", HUNT.name)
        seed = next(str(i) for i in range(99) if HUNT.skeleton(str(i)) != HUNT.skeleton(""))
        self.file(HUNT).write_text("mine")
        self.assertIn("Your name chooses another one", self.learn("start", HUNT.name, "--seed", seed))
        self.assertEqual((self.file(HUNT).parent / "kernel.cuh.old").read_text(), "mine")

    def test_a_seed_is_kept(self) -> None:
        seed = next(str(i) for i in range(99) if HUNT.skeleton(str(i)) != HUNT.skeleton(""))
        self.learn("start", HUNT.name, "--seed", seed)
        self.assertEqual(self.file(HUNT).read_text(), HUNT.skeleton(seed))
        self.learn("reset")
        self.assertEqual(self.file(HUNT).read_text(), HUNT.skeleton(seed))
        self.file(HUNT).write_text(HUNT.solution())
        self.learn("check", ends=0)

    def test_numbers_may_be_products(self) -> None:
        self.learn("start", PREDICT.name)
        truth = PREDICT.truth("")
        self.file(PREDICT).write_text("".join(f"{name} = 2 * ({number} - 1) / 2 + 1  # so\n" for name, number in truth.items()))
        self.learn("check", ends=0)
        for value, told in (("?", "Not answered yet"), ("1e3", "no number"), ("f(1)", "no number"), ("2 ** 99", "no number"), ("1 / 0", "no number"),
                            ("1 / 3", "must leave no rest"), ("9" * 30, "no number")):
            self.file(PREDICT).write_text(f"{next(iter(truth))} = {value}\n")
            self.assertIn(told, self.learn("check", ends=1))
        self.file(PREDICT).write_text("nosuch = 3\n")
        self.assertIn("no question 'nosuch'", self.learn("check"))

    def test_words_that_nobody_knows(self) -> None:
        self.assertIn("Did you mean check?", self.refused("chek"))
        self.assertIn(f"Did you mean {FILL.name}?", self.refused("start", FILL.name[:-1]))
        self.assertIn("No exercise is begun", self.refused("hint"))
        several = next(each for each in ALL if sum(other.rung == each.rung for other in ALL) > 1)
        self.assertIn(f"start {several.name}", self.refused("start", several.rung))
        only = next(each for each in ALL if sum(other.rung == each.rung for other in ALL) == 1)
        self.assertIn(only.title, self.learn("start", only.rung))

    def test_what_is_there_no_more(self) -> None:
        self.learn("start", FILL.name)
        self.file(FILL).write_text("\n")
        with self.assertRaisesRegex(exercises.CourseError, "is empty.\n  Anew:"):
            self.learn("check")
        with mock.patch.object(exercises, "kernel_of", side_effect=exercises.CourseError("no rung")):
            with self.assertRaisesRegex(exercises.CourseError, "no rung"):
                self.learn("reset")
        self.assertEqual(self.file(FILL).read_text(), "\n")  # nothing was put aside for nothing
        progress = json.loads((self.work / "progress.json").read_text())
        (self.work / "progress.json").write_text(json.dumps(progress | {"current": "77z_gone"}))
        self.assertIn("no part of the course any more", self.refused("check"))
        self.assertIn(ALL[0].title, self.learn())

    def test_who_begins_in_the_middle_goes_on_from_there(self) -> None:
        self.learn("start", ALL[5].name)
        self.file(ALL[5]).write_text(ALL[5].solution())
        with mock.patch.object(Exercise, "judge", lambda self, *_: Verdict(True, "passed", "")):
            self.assertIn(ALL[6].name, self.learn("check"))

    def test_an_exercise_that_was_edited_says_how_it_was(self) -> None:
        for file, text, told in (("exercise.toml", "title = [", "TOMLDecodeError"), ("exercise.toml", 'title = "mine"\n', "KeyError: 'kind'"),
                                 ("exercise.toml", None, "FileNotFoundError"), ("task.md", None, "FileNotFoundError"), ("task.md", b"\xff", "UnicodeDecodeError")):
            with tempfile.TemporaryDirectory() as made:
                shutil.copytree(exercises.FOLDER, folder := Path(made, "course", "exercises"))
                edited = folder / FILL.name / file
                edited.unlink()
                if text is not None:
                    edited.write_bytes(text if isinstance(text, bytes) else text.encode())
                with mock.patch.object(exercises.rungs, "root", lambda made=made: Path(made)), \
                     self.assertRaisesRegex(exercises.CourseError, rf"^course/exercises/{FILL.name}: {told}.*\n  As it was:  git restore course/exercises/{FILL.name}$"):
                    Exercise(folder / FILL.name)

    def test_progress_that_cannot_be_read_or_written(self) -> None:
        self.work.mkdir()
        (self.work / "progress.json").write_text("{")
        with self.assertRaisesRegex(exercises.CourseError, "progress.json cannot be read"):
            self.learn("list")
        (self.work / "progress.json").unlink()
        self.work.rmdir()
        self.work.write_text("a file")
        with self.assertRaisesRegex(exercises.CourseError, "cannot be written"):
            self.learn()

    def test_lines_that_an_editor_changes_by_itself(self) -> None:
        windows = FILL.solution().replace("\n", "  \r\n") + "\n\n"
        self.assertTrue(FILL.judge(windows, FILL.skeleton()).passed)

    def test_a_byte_order_mark(self) -> None:
        self.assertTrue(FILL.judge("\ufeff" + FILL.solution(), FILL.skeleton()).passed)
        self.assertIn("right", PREDICT.judge("\ufeff" + PREDICT.solution(), "").text)

    def test_what_is_said_of_a_line_outside(self) -> None:
        given = FILL.solution()
        first = given.split("\n")[0]
        for text, told in ((f"// mine\n{given}", "Line 1 is outside of your parts, and was added:\n  // mine\nNothing stood there."),
                           (f"\n{given}", "Line 1 is outside of your parts, and was added:\n  (an empty line)\nNothing stood there."),
                           (given.replace(first, "// mine", 1), f"and was changed:\n  // mine\nIt was:\n  {first}"),
                           (given.replace("\n\n", "\n// mine\n", 1), "and was changed:\n  // mine\nIt was empty."),
                           (given.removeprefix(f"{first}\n"), f"was removed; it stood before line 1:\n  {first}")):
            verdict = FILL.judge(text, FILL.skeleton())
            self.assertEqual(verdict.reason, "outside")
            self.assertIn(told, verdict.text)

    def test_a_mark_that_is_gone(self) -> None:
        verdict = FILL.judge(FILL.solution().replace(exercises.BEGIN, "//", 1), FILL.skeleton())
        self.assertEqual(verdict.reason, "outside")
        self.assertIn("reset", verdict.text)


@unittest.skipUnless("LADDER_WHOLE" in os.environ, "compiles kernels as `try` does, whose tests do that too; .ci/nightly")
class InEarnest(unittest.TestCase):
    """By the program, on one input set: what it says is the same on all."""

    def judged(self, exercise: Exercise, text: str, *flags: str) -> Verdict:
        return exercise._run(text, "work/mine.cuh", "--inputs", "normal", *flags)[0]

    def test_the_cause_comes_first_and_names_the_student_s_file(self) -> None:
        broken = FILL.solution().replace(exercises.END, f"no_such_name;\n  {exercises.END}", 1)
        verdict = self.judged(FILL, broken)
        self.assertEqual(verdict.reason, "not_a_kernel")
        self.assertRegex(verdict.text, r"^It does not compile.\nwork/mine.cuh:\d+:\d+: error: .*no_such_name")
        exercise = next(each for each in ALL if each.data.get("fails") == "conflicts_differ")
        verdict = self.judged(exercise, exercise.skeleton())
        self.assertRegex(verdict.text, r"^conflicts_differ: work/mine.cuh:\d+")

    def test_who_has_passed_sees_the_bytes(self) -> None:
        exercise = next(each for each in ALL if each.name.startswith("30c"))
        verdict = self.judged(exercise, exercise.solution())
        self.assertRegex(verdict.text, r"\nglobal memory, read +655,360 ")
        self.assertRegex(verdict.text, r"\nBytes that a multicast brought, counted in each block where they landed: 1,048,576\n$")
        self.assertNotIn("by source line", verdict.text)

    def test_who_climbs_is_not_sent_to_the_answer(self) -> None:
        for exercise, sent in ((CLIMB, False), (FILL, True)):
            wrong = exercise.solution().replace("p.softmax_scale", "2 * p.softmax_scale")
            verdict = self.judged(exercise, wrong, "--answers-only", "--n", "128")
            self.assertEqual((verdict.reason, "To read: docs/" in verdict.text), ("wrong_result", True))
            self.assertEqual("README.md" in verdict.text, sent, verdict.text)

    def test_an_exercise_whose_rung_has_changed_is_noticed(self) -> None:
        with mock.patch.object(Exercise, "kernel", lambda self: "// another kernel\n"):
            with self.assertRaisesRegex(exercises.CourseError, "0 times in the kernel"):
                FILL.skeleton()


if __name__ == "__main__":
    unittest.main()
