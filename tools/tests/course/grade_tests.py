"""`./ladder grade`: what is handed in, what it is worth, what comes out, and what a cage holds. Marks by comparison with the solution, but for a
small class that is graded in earnest; grade_class_tests.py has the hundred."""
from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path
from unittest import mock

from tools.course import cage as cages, exercises, grade, handed_in
from tools.paths import ROOT
from tools.tests.course import fake_class

BEST = cages.best  # which most tests need not look for

FILL = exercises.Exercise(exercises.FOLDER / fake_class.EXERCISE)
ALL = exercises.all_exercises()
PREDICT = next(each for each in ALL if each.kind == "predict")


def compared(self: exercises.Exercise, text: str, shown_as: str) -> exercises.Verdict:
    passed = exercises.normal(text) == exercises.normal(self.solution())
    failures = [] if passed else [{"kind": "wrong_result"}]
    exercises.run_ladder.rows = [{"ok": passed, "counters": {"mma": 8, "barriers": 64}, "max_err": 1e-4, "failures": failures}]
    return exercises.Verdict(passed, "passed" if passed else "wrong_result", f"{shown_as} was compared\x1b[31m")


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.handed_in = self.home / "in"
        self.handed_in.mkdir()

    def put(self, name: str, text: str = FILL.solution()) -> Path:
        path = self.handed_in / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def zip(self, name: str, **files: str | bytes) -> None:
        with zipfile.ZipFile(self.handed_in / name, "w", zipfile.ZIP_DEFLATED) as archive:
            for inside, text in files.items():
                archive.writestr(inside.replace("__", "/").replace("_cuh", ".cuh"), text)


class HandedIn(Folder):
    def found(self) -> dict[str, handed_in.Submission]:
        return {each.student: each for each in handed_in.submissions_in(self.handed_in, FILL)}

    def test_what_learning_systems_hand_over(self) -> None:
        for name in ("ada/kernel.cuh", "bob/deep/02a_swizzle/kernel.cuh", "bob/kernel.cuh", "cyd/my_kernel.cuh", "dee.cuh", "eve/kernel.cu",
                     "Flo Fox_1234_assignsubmission_file/kernel.cuh", "gagga_LATE_77_88_kernel.cuh", ".hidden/kernel.cuh", "ada/.git/kernel.cuh"):
            self.put(name)
        self.put("ada/task.md", "full marks for me")  # a task is the lecturer's, whatever lies beside the kernel
        self.put("ada/exercise.toml", 'kind = "gift"')
        self.zip("hal.zip", hal__02a_swizzle__kernel_cuh=FILL.solution(), **{"__MACOSX/kernel.cuh": "x"})
        found = self.found()
        self.assertEqual(sorted(found), ["Flo Fox_1234", "ada", "bob", "cyd", "dee", "eve", "gagga_77", "hal"])
        for each in found.values():
            self.assertEqual((each.text, each.problem), (FILL.solution(), ""), each.student)
        self.assertEqual(found["bob"].file, "bob/deep/02a_swizzle/kernel.cuh")

    def test_a_whole_work_folder_has_the_one_of_each_exercise(self) -> None:
        for student, names in {"ada": ("02b_scrambled",), "bob": ("02b_scrambled", "03b_sometimes"), "cyd": ("02a_swizzle", "02b_scrambled")}.items():
            for name in names:
                self.put(f"{student}/work/{name}/kernel.cuh", FILL.solution() if name == FILL.name else "another exercise's")
        found = self.found()
        self.assertEqual([(each.student, each.problem) for each in found.values()],
                         [("ada", "There is no kernel.cuh."), ("bob", "There is no kernel.cuh."), ("cyd", "")])
        self.assertEqual(found["cyd"].text, FILL.solution())
        self.handed_in /= "ada/work"  # a single one; no student is called 02b_scrambled
        self.assertEqual([(each.student, each.problem) for each in self.found().values()], [("work", "There is no kernel.cuh.")])

    def test_a_zip_in_moodle_s_folder(self) -> None:
        def moodle(student: str, what: str = "file") -> str:
            return f"{student}_assignsubmission_{what}"

        for name in ("Ada_1", "Bob_2", "Cyd_3", "Dee_4"):
            (self.handed_in / moodle(name)).mkdir()
        self.zip(f"{moodle('Ada_1')}/ada.zip", work__02a_swizzle__kernel_cuh=FILL.solution())
        self.put(f"{moodle('Ada_1')}/report.pdf", "my text")
        self.zip(f"{moodle('Bob_2')}/bob.zip", readme="none")
        for name in ("one", "two"):
            self.zip(f"{moodle('Cyd_3')}/{name}.zip", kernel_cuh=FILL.solution())
        (self.handed_in / moodle("Dee_4") / "dee.zip").symlink_to(self.handed_in / moodle("Ada_1") / "ada.zip")
        found = self.found()
        self.assertEqual([(each.student, each.problem) for each in found.values()],
                         [("Ada_1", ""), ("Bob_2", "There is no kernel.cuh."), ("Cyd_3", "Which one? one.zip, two.zip. Leave one of them."),
                          ("Dee_4", found["Dee_4"].problem)])
        self.assertIn("cannot be read", found["Dee_4"].problem)
        self.assertEqual((found["Ada_1"].text, found["Ada_1"].file),
                         (FILL.solution(), f"{moodle('Ada_1')}/ada.zip/work/02a_swizzle/kernel.cuh"))

    def test_what_moodle_has_of_a_text_online_is_no_second_one(self) -> None:
        self.put("Ada_1_assignsubmission_file_/kernel.cuh")
        self.put("Bob_2_assignsubmission_file_/readme.md")
        for name in ("Ada_1", "Bob_2"):
            self.put(f"{name}_assignsubmission_onlinetext_/onlinetext.html", "<p>my text</p>")
        self.put("Cyd_3_assignsubmission_afile_/readme.md")
        self.put("Cyd_3_assignsubmission_file_/kernel.cuh")
        self.assertEqual([(each.student, each.problem) for each in self.found().values()],
                         [("Ada_1", ""), ("Bob_2", "There is no kernel.cuh."), ("Cyd_3", "")])

    def test_one_submission_as_an_autograder_has_it(self) -> None:
        self.put("kernel.cuh")
        self.put("notes/other.txt")
        self.assertEqual([each.text for each in self.found().values()], [FILL.solution()])

    def test_what_cannot_be_graded(self) -> None:
        self.put("two/a.cuh")
        self.put("two/b.cuh")
        self.put("none/readme.md")
        (self.put("binary/kernel.cuh")).write_bytes(b"\xff\xfe\0")
        self.put("large/kernel.cuh", "x" * (handed_in.MOST_BYTES + 1))
        (self.handed_in / "link").mkdir()
        (self.handed_in / "link" / "kernel.cuh").symlink_to("/etc/passwd")
        (self.handed_in / "folder").symlink_to("/etc")
        (self.handed_in / "pipe").mkdir()
        os.mkfifo(self.handed_in / "pipe" / "kernel.cuh")
        self.put("broken.zip", "no zip")
        self.zip("bomb.zip", kernel_cuh=b"\0" * (64 << 20))
        self.zip("out.zip", **{"../../out.md": "x"})
        self.zip("torn.zip", kernel_cuh=FILL.solution())
        torn = (self.handed_in / "torn.zip").read_bytes()
        (self.handed_in / "torn.zip").write_bytes(torn[:60] + b"\xff" * 200 + torn[260:])
        self.put("twice/kernel.cuh")
        self.put("twice.cuh")
        told = {"two": "Which one? a.cuh, b.cuh", "none": "There is no kernel.cuh", "binary": "is no text", "large": "larger than 1 MiB",
                "link": "cannot be read", "folder": "is a link", "pipe": "is no file", "broken": "cannot be unpacked", "torn": "cannot be unpacked", "bomb": "larger than 1 MiB",
                "out": "There is no kernel.cuh", "twice": "Handed in twice"}
        found = self.found()
        self.assertEqual(sorted(found), sorted(told))
        for student, problem in told.items():
            self.assertIn(problem, found[student].problem)
            self.assertEqual(found[student].unread, student in ("two", "link", "twice"), student)
        self.assertFalse((self.home / "out.md").exists())

    def test_no_permission(self) -> None:
        self.put("ada/kernel.cuh").chmod(0)
        if os.geteuid() == 0:  # to whom everything is open
            with mock.patch.object(os, "open", side_effect=PermissionError(13, "Permission denied")):
                ada = self.found()["ada"]
        else:
            ada = self.found()["ada"]
        self.assertTrue(ada.unread)
        self.assertIn("Permission denied", ada.problem)


class Commands(Folder):
    def setUp(self) -> None:
        super().setUp()
        for patch in (mock.patch.object(exercises.Exercise, "_try", compared), mock.patch.object(exercises, "run_ladder", exercises.run_ladder),
                      mock.patch.object(cages, "best", lambda *_: (cages.Cage("bubblewrap", []), ""))):
            patch.start()
            self.addCleanup(patch.stop)

    def grade(self, *words: str, code: int = 0) -> tuple[str, str]:
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            self.assertEqual(grade.main([str(self.handed_in), *words]), code, errors)
        return out.getvalue(), errors.getvalue()

    def refused(self, *words: str) -> str:
        with self.assertRaises(grade.Usage) as refusal:
            self.grade(*words)
        return str(refusal.exception)

    def marked(self, exercise: str, *words: str, code: int = 0) -> list[dict]:
        return json.loads(self.grade("--exercise", exercise, "--json", "-", *words, code=code)[0])["submissions"]


class Command(Commands):
    def put_class(self, exercise: exercises.Exercise) -> None:
        self.put("ada/kernel.cuh", exercise.solution())
        self.put("bob/kernel.cuh", exercise.skeleton())
        for name in ("cyd", "dee"):
            self.put(f"{name}/kernel.cuh", fake_class.with_code(exercise, "// mine"))
        self.put("eve/kernel.cuh", exercise.solution().replace("namespace {", "// edited\nnamespace {", 1))

    def test_marks_and_why(self) -> None:
        self.put_class(exercises.Exercise(exercises.FOLDER / "01a_online"))
        marked = {each["student"]: each for each in self.marked("01a")}
        self.assertEqual({name: (each["score"], each["reason"]) for name, each in marked.items()},
                         {"ada": (100, "passed"), "bob": (0, "untouched"), "cyd": (0, "wrong_result"), "dee": (0, "wrong_result"),
                          "eve": (0, "outside")})
        self.assertEqual((marked["cyd"]["same_as"], marked["dee"]["same_as"]), (["dee"], ["cyd"]))
        self.assertNotIn("same_as", marked["ada"])
        self.assertIn("outside of your parts", marked["eve"]["said"])
        out, _ = self.grade("--exercise", "01a")
        self.assertRegex(out, r"(?m)^cyd +0 .* wrong_result, same file as dee$")
        self.assertIn("5 graded, 1 passed, mean 20.0 of 100.", out)

    def test_weaker_checks_are_named_once(self) -> None:
        def on_a_weaker_machine(*arguments):
            verdict = compared(*arguments)
            exercises.run_ladder.rows[0]["weaker"] = "Checks are weaker here: of some."
            return verdict

        self.put_class(FILL)
        with mock.patch.object(exercises.Exercise, "_try", on_a_weaker_machine):
            out, _ = self.grade("--exercise", "02a")
        self.assertTrue(out.endswith(" of 100.\nChecks are weaker here: of some.\n"), out)
        out, _ = self.grade("--exercise", "02a")
        self.assertNotIn("weaker", out)

    def test_the_same_submissions_give_the_same_bytes(self) -> None:
        self.put_class(FILL)
        first, again, alone = (self.home / name for name in ("1.json", "2.json", "3.json"))
        for file, words in ((first, ()), (again, ()), (alone, ("--jobs", "1"))):
            self.grade("--exercise", "02a", "--json", str(file), *words)
        self.assertEqual(first.read_bytes(), again.read_bytes())
        self.assertEqual(first.read_bytes(), alone.read_bytes())

    def test_an_empty_file_and_none(self) -> None:
        self.put("empty/kernel.cuh", "")
        self.put("nothing/readme.md")
        self.assertEqual([(each["student"], each["reason"], each.get("same_as")) for each in self.marked("01a")],
                         [("empty", "outside", None), ("nothing", "not_judged", None)])

    def test_where_nobody_is_judged(self) -> None:
        for name in ("ada", "bob"):
            self.put(f"{name}/readme.md")
        _, errors = self.grade("--exercise", "02a", code=1)
        self.assertIn("NOBODY WAS JUDGED. The first, ada: There is no kernel.cuh.", errors)
        self.put("cyd/kernel.cuh", FILL.skeleton())
        self.assertNotIn("NOBODY", self.grade("--exercise", "02a")[1])

    def test_a_byte_order_mark(self) -> None:
        self.put("ada/kernel.cuh", "\ufeff" + FILL.solution())
        self.put("bob/kernel.cuh", "\ufeff" + FILL.skeleton())
        self.zip("cyd.zip", kernel_cuh="\ufeff" + FILL.solution())
        self.assertEqual([each["reason"] for each in self.marked("02a")], ["passed", "untouched", "passed"])

    def test_a_name_is_no_formula(self) -> None:
        self.put("=1+1.cuh", FILL.solution())
        file = self.home / "points.csv"
        self.grade("--exercise", FILL.name, "--csv", str(file))
        self.assertTrue(file.read_text().splitlines()[1].startswith("'=1+1,100"))

    def test_an_assignment_is_its_exercises(self) -> None:
        chosen = grade.assignment_called("1").exercises
        self.assertGreater(len(chosen), 1)
        for i, exercise in enumerate(chosen):
            self.put(f"ada/work/{exercise.name}/{exercise.file_name}", exercise.solution())
            if i != 1:
                self.put(f"bob/work/{exercise.name}/{exercise.file_name}", exercise.solution() if i else exercise.skeleton())
        self.zip("cyd.zip", **{f"work/{chosen[0].name}/kernel.cuh": chosen[0].solution()})
        files = [self.home / name for name in ("points.csv", "points.json")]
        out, _ = self.grade("--assignment", "1", "--csv", str(files[0]), "--json", str(files[1]))
        count = len(chosen)
        points = {"ada": 40, "bob": round(40 * (count - 2) / count, 2), "cyd": round(40 / count, 2)}
        lines = files[0].read_text().splitlines()
        self.assertEqual(lines[0], ",".join(["student", "points of 40", *(f"{each.name} of 100" for each in chosen)]))
        self.assertEqual([line.split(",")[:2] for line in lines[1:]], [[name, f"{number:g}"] for name, number in points.items()])
        self.assertEqual(lines[3].split(",")[2:], ["100"] + ["0"] * (count - 1))
        whole = json.loads(files[1].read_text())
        self.assertEqual((whole["points"], [each["exercise"] for each in whole["exercises"]]), (points, [each.name for each in chosen]))
        self.assertRegex(out, rf"(?m)^bob +{points['bob']:g} .* 00a untouched, 00b not_judged$")
        self.grade("--assignment", "1", "--at-least", "40", code=1)
        self.handed_in /= "ada/work"  # a student, of the own work
        self.assertRegex(self.grade("--assignment", "assignment 1")[0], r"(?m)^work +40 .* passed$")
        self.assertIn("There are: 1, 2, 3", self.refused("--assignment", "project"))
        self.assertIn("leave --exercise", self.refused("--assignment", "1", "--exercise", "00a"))

    def test_points_of_every_assignment(self) -> None:
        self.assertEqual([grade.assignment_called(number).points for number in "123"], [40, 40, 20])

    def test_strangers_write_no_escapes_to_a_terminal(self) -> None:
        self.put("a\x1b[31mb/kernel.cuh")
        self.put("cyd/kernel.cuh", fake_class.with_code(FILL, "// mine"))
        out, errors = self.grade("--exercise", "02a")
        self.assertNotIn("\x1b", out + errors)

    def test_numbers_are_marked_each_for_itself(self) -> None:
        other = next(seed for seed in map(str, range(99)) if PREDICT.shape(seed) != PREDICT.shape("ada"))
        truth = PREDICT.truth("ada")
        self.put("ada/answers.txt", "".join(f"{name} = {number}\n" for name, number in truth.items()))
        self.put("bob/answers.txt", "".join(f"{name} = {number + (i == 0)}\n" for i, (name, number) in enumerate(PREDICT.truth("bob").items())))
        seeds = self.home / "seeds.csv"
        seeds.write_text("ada,ada\nbob,bob\n")
        ada, bob = self.marked(PREDICT.name, "--seeds", str(seeds))
        self.assertEqual((ada["score"], bob["score"]), (100, round(100 * (len(truth) - 1) / len(truth), 2)))
        seeds.write_text("ada,ada\n")
        self.assertIn("no seed for bob", self.refused("--exercise", PREDICT.name, "--seeds", str(seeds)))
        seeds.write_text(f"ada,{other}\nbob,ada\n")
        self.assertLess(self.marked(PREDICT.name, "--seeds", str(seeds))[0]["score"], 100)

    def test_another_seed_s_numbers_are_not_judged(self) -> None:
        other = next(seed for seed in map(str, range(99)) if PREDICT.shape(seed) != PREDICT.shape(""))
        self.assertEqual(PREDICT.shape_named(PREDICT.skeleton(other)), PREDICT.shape(other))
        self.put("ada/answers.txt", PREDICT.solution(other))
        self.put("bob/answers.txt", PREDICT.solution())
        words = ("--exercise", PREDICT.name, "--json", "-")
        out, errors = self.grade(*words, code=1)
        ada, bob = json.loads(out)["submissions"]
        self.assertEqual((ada["reason"], bob["reason"]), ("other_seed", "passed"))
        self.assertIn(f"Its first line names {PREDICT.words(PREDICT.shape(other))}. Without a seed it would be", ada["said"])
        self.assertIn("NOT GRADED: ada: Its first line", errors)
        shutil.rmtree(self.handed_in / "bob")
        self.assertEqual(self.marked(PREDICT.name, "--seed", other)[0]["reason"], "passed")
        self.assertIn("leave one of them out", self.refused(*words, "--seed", other, "--seeds", "progress"))
        self.assertIn("NOBODY WAS JUDGED", self.grade(*words, code=1)[1])

    def test_seeds_out_of_progress(self) -> None:
        seeds = [next(seed for seed in map(str, range(999)) if PREDICT.shape(seed) == shape) for shape in PREDICT.data["shapes"][:3]]
        for name, seed in zip(("ada", "bob", "cyd"), seeds):
            of = {"seed": seed} | ({"exercises": {}} if name == "ada" else {"seed": "changed later", "exercises": {PREDICT.name: {"seed": seed}}})
            if name == "cyd":
                self.zip("cyd.zip", **{f"work/{PREDICT.name}/answers.txt": PREDICT.solution(seed), "work/progress.json": json.dumps(of)})
            else:
                self.put(f"{name}/work/{PREDICT.name}/answers.txt", PREDICT.solution(seed))
                self.put(f"{name}/work/progress.json", json.dumps(of))
        words = ("--exercise", PREDICT.name, "--seeds", "progress", "--json", "-")
        self.assertEqual([(each["seed"], each["reason"]) for each in self.marked(PREDICT.name, "--seeds", "progress")],
                         [(seed, "passed") for seed in seeds])
        for progress in ("[]", '{"seed": 1, "exercises": {}}', '{"seed": "\\ud800", "exercises": {}}', "no json", json.dumps({"seed": "x" * 999})):
            self.put(f"dee/work/{PREDICT.name}/answers.txt", PREDICT.solution())
            self.put("dee/work/progress.json", progress)
            out, errors = self.grade(*words, code=1)
            self.assertEqual(json.loads(out)["submissions"][3]["reason"], "not_judged", progress)
            self.assertIn("NOT GRADED: dee: Its seed is not known", errors)
        self.put("ada/kernel.cuh")  # an exercise in which a seed means nothing
        self.grade("--exercise", "02a", "--seeds", "progress")

    def test_what_cannot_be_done(self) -> None:
        self.assertIn("holds no submissions", self.refused("--exercise", "02a"))
        self.put("ada/kernel.cuh")
        self.assertIn("Did you mean 02a_swizzle?", self.refused("--exercise", "02a_swizle"))
        self.assertIn("Which exercise?", self.refused())
        self.assertIn("cannot be written", self.refused("--exercise", "02a", "--json", "/no/such/file"))
        self.assertIn("can have stdout", self.refused("--exercise", "02a", "--json", "-", "--csv", "-"))
        self.assertIn("more than 0", self.refused("--exercise", "02a", "--jobs", "0"))
        self.handed_in /= "nowhere"
        self.assertIn("is not there", self.refused("--exercise", "02a"))

    def test_who_is_below_and_who_was_not_read(self) -> None:
        self.put("ada/kernel.cuh")
        self.grade("--exercise", "02a", "--at-least", "100")
        self.put("ada.cuh")
        self.assertIn("NOT GRADED: ada: Handed in twice", self.grade("--exercise", "02a", code=1)[1])
        (self.handed_in / "ada.cuh").unlink()
        self.put("bob/kernel.cuh", FILL.skeleton())
        self.grade("--exercise", "02a", "--at-least", "100", code=1)

    def test_without_isolation(self) -> None:
        self.put("ada/kernel.cuh")
        with mock.patch.object(cages, "best", BEST), mock.patch.object(cages.Cage, "run", lambda *_: cages.Ended(126, "", b"", b"Permission denied")):
            with self.assertRaisesRegex(exercises.NotHere, r"does not run in a cage(?s:.*)Permission denied(?s:.*)chmod o\+x"):
                self.grade("--exercise", "02a")
        with mock.patch.object(cages, "best", lambda *_: (cages.Cage("limits", []), "bwrap: no")):
            self.assertIn("WARNING: no isolation", self.grade("--exercise", "02a")[1])
            self.assertIn("bwrap: no", self.refused("--exercise", "02a", "--require-isolation"))

    def test_a_compiler_that_lies_elsewhere_is_seen_in_the_cage_and_a_home_is_not(self) -> None:
        build = self.home / "elsewhere"
        prefix, link, home = build / "gcc-13.2", build / "gcc", build / "home"
        for folder in (prefix / "bin", prefix / "lib/gcc", home / "bin"):
            folder.mkdir(parents=True)
        link.symlink_to(prefix)
        for program in (prefix / "bin/g++", home / "bin/c++"):
            program.touch()
        commands = [f"{program} -O2 -c x.cpp" for program in (link / "bin/g++", home / "bin/c++", "/usr/bin/c++", "c++")]
        (build / "compile_commands.json").write_text(json.dumps([{"command": command} for command in commands]))
        self.assertEqual(grade.toolchains(build), [link, prefix])
        self.assertEqual(grade.toolchains(build / "none"), [])

    def test_where_the_solution_fails_nobody_is_graded(self) -> None:
        self.put("ada/kernel.cuh")
        broken = mock.patch.object(exercises.Exercise, "_try", lambda *_: exercises.Verdict(False, "not_a_kernel", "no compiler"))
        with broken, self.assertRaisesRegex(exercises.NotHere, "no compiler"):
            grade.main([str(self.handed_in), "--exercise", "02a"])


def cages_that_run(program: Path) -> list[str]:
    """Their kinds. There may be none: for root in a folder that is closed to others, where bubblewrap cannot be used either."""
    kinds = [kind for kind in ("limits", "bubblewrap") if kind == "limits" or shutil.which("bwrap")]
    found = [kind for kind in kinds if cages.Cage(kind, [program.parent]).run([str(program), "describe", "--json", "-"]).code == 0]
    if not found:
        raise unittest.SkipTest(f"{program} runs in no cage here")
    return found


class Pages(unittest.TestCase):
    def test_the_marks_are_those_of_the_page(self) -> None:
        page = (ROOT / "course" / "grading.md").read_text()
        marks = {name: int(most) for most, name in re.findall(r"^\| (\d+) (\w+) \|", page, re.M)}
        self.assertEqual(marks, grade.MARKS)

    def test_every_command_of_the_pages_is_one(self) -> None:
        commands = [re.split("[#`]", line.split("ladder grade ", 1)[1])[0].strip() for name in ("grading.md", "assignments.md", "workflow.yml")
                    for line in (ROOT / "course" / name).read_text().splitlines() if re.search(r"ladder grade \S*(submission|DIR)", line)]
        self.assertGreaterEqual(len(commands), 3)
        for command in commands:
            typed = grade.flags().parse_args(re.split(r" (?:>|\|\|) ", command)[0].replace('"$LADDER_EXERCISE"', "02a").split())
            if typed.assignment:
                grade.assignment_called(typed.assignment)
                continue
            grade.exercise_of(typed)

    def test_the_workflow_keeps_the_build_whatever_the_kernel_does(self) -> None:
        text = (ROOT / "course" / "workflow.yml").read_text()
        steps = ["actions/cache/restore@", "name: Build", "actions/cache/save@", "apt-get update", "apt-get install", "ladder/ladder grade submission"]
        self.assertEqual(sorted(steps, key=text.index), steps)
        self.assertNotIn("classroom", text.lower())

    def test_every_reason_is_explained(self) -> None:
        page = (ROOT / "course" / "grading.md").read_text()
        table = page.partition("| why | |\n")[2].partition("\n\n")[0]
        explained = {name for row in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
        code = "".join((ROOT / "tools" / "course" / name).read_text() for name in ("grade.py", "exercises.py", "cage.py"))
        said = {f"too_much_{what}" for what in re.findall(r'stopped = "(\w+)"', code)}
        for line in re.findall(r"^.*(?:Verdict\(|nothing_judged\(|\"reason\": \"|return \"\w+\", ).*$", code, re.M):
            said |= {name for name in re.findall(r'"([a-z]+(?:_[a-z]+)*)"', line) if name not in ("passed", "reason")}
        self.assertGreater(len(said), 12)
        self.assertEqual(explained, said)


class Marks(unittest.TestCase):
    def test_every_kind_of_failure_has_its_marks(self) -> None:
        """A new kind is neither here nor there until somebody says so."""
        kinds = (ROOT / "harness" / "verify" / "check.hpp").read_text(encoding="utf-8").partition("enum class FailureKind {")[2].partition("};")[0]
        answers = {"wrong_result", "wrong_lse", "nan_output", "unwritten_output", "launch_failed", "differs_from_naive", "property_broken", "hangs"}
        self.assertEqual(set(re.findall(r"^  (\w+),", kinds, re.M)), answers | {*grade.RACES, *exercises.ABOUT_COUNTS})

    def shares(self, *kinds: str, passed: bool = False, max_err: float | None = 1e-4) -> list[float]:
        rows = [{"failures": [{"kind": kind} for kind in kinds], "max_err": max_err}]
        verdict = exercises.Verdict(passed, kinds[0] if kinds else "passed", "")
        return [grade.shares(verdict, rows, "fill", 1)[name] for name in ("answers", "races", "counts")]

    def test_none_without_those_before_it(self) -> None:
        self.assertEqual(self.shares(passed=True), [1, 1, 1])
        self.assertEqual(self.shares("counts_differ"), [1, 1, 0])
        self.assertEqual(self.shares("emulator_report", "counts_differ"), [1, 0, 0])
        self.assertEqual(self.shares("emulator_report", "nan_output"), [0, 0, 0])
        self.assertEqual(self.shares("emulator_report", max_err=None), [0, 0, 0])  # an endless loop, for one
        for kind in ("wrong_result", "hangs", "launch_failed", "a kind that is new"):
            self.assertEqual(self.shares(kind), [0, 0, 0])
        self.assertEqual(set(grade.shares(exercises.Verdict(True, "passed", ""), None, "fill", 1).values()), {0})

    def test_what_is_given_earns_nothing(self) -> None:
        self.assertEqual(grade.usual_marks(set()), {"answers": 50, "races": 20, "counts": 30})
        self.assertEqual(grade.usual_marks({"answers", "races"}), {"counts": 100})
        self.assertEqual(grade.usual_marks({"answers"}), {"races": 40, "counts": 60})
        self.assertEqual(grade.usual_marks({"answers", "races", "counts"}), {"counts": 100})
        for exercise in ALL:
            if exercise.kind == "hunt":
                self.assertEqual({each.text for each in grade.starts(exercise)}, {exercise.with_bug(i) for i in range(len(exercise.data["bug"]))})

    def test_a_seal(self) -> None:
        row = '[{"ok": true}]'
        self.assertEqual(grade.unsealed(f"s3cret{row}s3cret".encode(), "s3cret"), [{"ok": True}])
        for forged in (row, f"{row}s3cret", f"s3cret{row}", f"{row}s3cret{row}s3cret", f"s3cret{row}s3cret{row}", "s3crets3cret", "s3cret[]s3cret",
                       f"s3cret{row}s3crets3cret", f"s3cret{row},{row}s3cret", "s3cret{}s3cret", ""):
            self.assertIsNone(grade.unsealed(forged.encode(), "s3cret"), forged)


class Memory(unittest.TestCase):
    GIB = 1 << 30

    def available(self, **files: int | str) -> int:
        """Where these files are; a key's __ stands for /, and a _ before max for a dot."""
        with tempfile.TemporaryDirectory() as home:
            for name, text in files.items():
                file = Path(home, name.replace("__", "/").replace("_max", ".max").replace("_limit", ".limit"))
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"{text}\n")
            return cages.memory_available(Path(home, "proc"), Path(home, "sys"))

    def test_what_is_available_is_the_least_that_anybody_says(self) -> None:
        meminfo = {"proc__meminfo": f"MemTotal: 9 kB\nMemAvailable:   {self.GIB >> 10} kB"}
        self.assertEqual(self.available(**meminfo), self.GIB)
        self.assertEqual(self.available(**meminfo, sys__memory_max=self.GIB // 2), self.GIB)  # without a word of which group it is in
        inside = meminfo | {"proc__self__cgroup": "0::/a/b"}
        self.assertEqual(self.available(**inside, sys__a__b__memory_max="max", sys__a__memory_max=self.GIB // 2), self.GIB // 2)
        self.assertEqual(self.available(**inside, sys__memory_max=self.GIB // 4, sys__a__memory_max=2 * self.GIB), self.GIB // 4)
        self.assertEqual(self.available(**meminfo, proc__self__cgroup="4:cpu,cpuacct:/x\n3:memory:/job",
                                        sys__memory__job__memory_limit_in_bytes=self.GIB // 8), self.GIB // 8)
        self.assertEqual(self.available(**meminfo, sys__memory__memory_limit_in_bytes=self.GIB // 8), self.GIB // 8)
        self.assertGreater(self.available(), 0)

    def test_what_each_may_have(self) -> None:
        def shares(available: float, cores: int, jobs: int | None = None) -> tuple[int, float]:
            with mock.patch.object(cages, "memory_available", lambda: int(available * self.GIB)), mock.patch.object(os, "cpu_count", lambda: cores):
                count, memory = grade.jobs_and_memory(jobs)
            return count, memory / self.GIB

        self.assertEqual(shares(64, 8), (8, 3))
        self.assertEqual(shares(3.5, 2), (2, 1.75))
        self.assertEqual(shares(2, 16), (4, 0.5))
        self.assertEqual(shares(0.25, 16), (1, 0.25))
        self.assertEqual(shares(3.5, 2, jobs=7), (7, 0.5))

    def test_whom_the_system_kills(self) -> None:
        def reason(code: int, said: str = "", stopped: str = "") -> str:
            return grade.without_verdict(cages.Ended(code, stopped, b"", b""), said)[0]

        compiler = f"It does not compile.\ng++: {grade.COMPILER_KILLED} cc1plus"
        self.assertEqual([reason(-9), reason(137), reason(1, compiler)], ["too_much_memory"] * 3)
        self.assertEqual(grade.without_verdict(cages.Ended(77, "", b"", b""), "no compiler"), ("", "no compiler"))
        self.assertEqual([reason(-9, stopped="time"), reason(-11), reason(139), reason(1, "no kernel"), reason(0, compiler), reason(0)],
                         ["too_much_time", "crashed", "crashed", "", "no_verdict", "no_verdict"])


class InACage:
    """Each in both cages."""

    kind = ""

    def setUp(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.home.chmod(0o755)
        self.cage = cages.Cage(self.kind, [], cages.Limits(seconds=300, memory=200 << 20, file_bytes=1 << 20, output=1 << 20, processes=20))
        if self.kind == "bubblewrap" and not shutil.which("bwrap") or self.run_("true").code != 0:
            self.skipTest(f"{self.kind} cannot be used here")

    def run_(self, script: str, **options) -> cages.Ended:
        return self.cage.run(["sh", "-c", script], **options)

    def python(self, code: str) -> cages.Ended:
        return self.cage.run(["/usr/bin/python3", "-c", code])

    def left(self) -> list[str]:
        return [name for pid in cages.family(os.getpid()) for name in [Path(f"/proc/{pid}/comm").read_text().strip()] if name in ("sleep", "sh")]

    def test_what_goes_in_and_what_comes_out(self) -> None:
        ended = self.run_("cat; echo errors >&2; exit 3", given=b"word")
        self.assertEqual((ended.code, ended.stopped, ended.stdout, ended.stderr), (3, "", b"word", b"errors\n"))

    def test_time(self) -> None:
        self.cage.limits = cages.Limits(seconds=1)
        ended = self.run_("trap '' TERM INT; while :; do :; done")
        self.assertEqual((ended.stopped, ended.killed), ("time", False))

    def test_memory(self) -> None:
        self.assertEqual(self.python("import time; a = bytearray(400 << 20); time.sleep(600)").stopped, "memory")

    def test_output(self) -> None:
        for stream in (1, 2):
            ended = self.run_(f"yes >&{stream}")
            self.assertEqual(ended.stopped, "output")
            self.assertLess(len(ended.stdout) + len(ended.stderr), 3 << 20)

    def test_files(self) -> None:
        self.assertIn(b"1048576", self.run_('head -c 9999999 /dev/zero > "$TMPDIR/big"; wc -c < "$TMPDIR/big"').stdout)

    def test_processes(self) -> None:
        ended = self.run_("for i in $(seq 200); do sleep 600 & done; wait")
        self.assertTrue(b"ork" in ended.stderr or ended.stopped == "processes", ended)  # the system's no, or ours
        self.assertEqual(self.left(), [])

    def test_nobody_stays(self) -> None:
        ended = self.run_("setsid sleep 600 & (setsid setsid sleep 600 &) ; exit 5")
        self.assertEqual((ended.code, ended.stopped), (5, ""))  # it waits for none of them: that would have been too much time
        self.assertEqual(self.left(), [])

    @unittest.skipUnless(shutil.which("choom"), "util-linux has no choom here")
    def test_who_goes_first_when_memory_is_short(self) -> None:
        self.assertEqual(self.run_("cat /proc/self/oom_score_adj").stdout, b"1000\n")

    def test_killed_by_somebody_else(self) -> None:
        ended = self.run_("kill -9 $$")
        self.assertTrue(ended.killed, ended)
        reason, told = grade.without_verdict(ended, "")
        self.assertEqual(reason, "too_much_memory")
        self.assertIn("not by this judge", told)

    def test_nothing_of_the_environment(self) -> None:
        with mock.patch.dict(os.environ, LADDER_TOKEN="secret"):
            self.assertNotIn(b"secret", self.run_("env").stdout)


class Limits(InACage, unittest.TestCase):
    kind = "limits"

    def test_root_hands_its_rights_in(self) -> None:
        if os.geteuid() == 0:
            file = self.home / "file"
            file.write_text("mine")
            self.cage.run(["sh", "-c", f'echo theirs > "$0"; rm -f "$0"; kill -9 {os.getpid()}', str(file)])
            self.assertEqual(file.read_text(), "mine")


class Bubblewrap(InACage, unittest.TestCase):
    kind = "bubblewrap"

    def test_no_network(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}))"
            subprocess.run([sys.executable, "-c", code], check=True)  # without a cage it is there
            self.assertIn(b"refused", self.python(code).stderr)

    def test_no_file_but_those_that_are_named(self) -> None:
        mine, named = self.home / "mine", self.home / "named"
        for file in (mine, named):
            file.write_text("text")
            file.chmod(0o666)
        new = Path("/tmp", f"new.{os.getpid()}")  # nobody else's
        self.assertEqual(self.cage.run(["cat", str(named)], reads=[named]).stdout, b"text")
        self.assertEqual(self.cage.run(["cat", str(mine)], reads=[named]).stdout, b"")
        self.cage.run(["sh", "-c", 'echo theirs > "$0"; rm -f "$0"; echo theirs > "$1/new"; echo theirs > "$2"', str(named), str(self.home),
                       str(new)], reads=[named])
        self.assertEqual(sorted(path.name for path in self.home.iterdir()), ["mine", "named"])
        self.assertEqual(named.read_text(), "text")
        self.assertFalse(new.exists())

    def test_no_sight_of_others(self) -> None:
        ended = self.run_(f"kill -9 {os.getpid()}; ls -d /proc/{os.getpid()}; kill -9 -1; kill -9 $PPID; echo here")
        self.assertEqual(ended.stdout, b"here\n")
        if os.geteuid() == 0:
            self.assertNotEqual(self.run_("id -u").stdout, b"0\n")


class Interrupted(Folder):
    def test_nobody_stays(self) -> None:
        """Neither after Ctrl-C nor when the class itself is killed."""
        script = ("import sys\nfrom tools.course import cage, exercises, grade\n"
                  f"held = cage.Cage('limits', [], cage.Limits())\n"
                  "grade.judged = lambda *_: held.run(['sleep', sys.argv[1]])\n"
                  f"fill = exercises.Exercise(exercises.FOLDER / '{fake_class.EXERCISE}')\n"
                  "print('begun', flush=True)\n"
                  "grade.Class(fill, {}, grade.CagedLadder(held, 1)).judge([grade.Submission('ada')], 1, print)\n")
        for number, how in enumerate((signal.SIGINT, signal.SIGKILL)):
            sleeps = f"{700 + number}.{os.getpid()}"  # nobody else's
            running = subprocess.Popen([sys.executable, "-c", script, sleeps], cwd=ROOT, stdout=subprocess.PIPE,
                                       stderr=subprocess.DEVNULL)

            def sleeping() -> bool:
                return subprocess.run(["pgrep", "-f", f"sleep {sleeps}"], capture_output=True).returncode == 0

            for wanted in (True, False):
                limit = time.monotonic() + 600  # by itself it sleeps longer
                while sleeping() is not wanted:
                    self.assertLess(time.monotonic(), limit, wanted)
                    time.sleep(0.05)
                if wanted:
                    running.send_signal(how)
            running.wait()
            running.stdout.close()


class InEarnest(Folder):
    """A small class: what no other test here does in earnest. grade_class_tests.py has everybody."""

    WHO = ("hole_0", "untouched", "elsewhere", "refused_imports", "forges", "writes")

    def test_a_small_class(self) -> None:
        cages_that_run(exercises.rungs.program().resolve())
        victim = self.home / "victim"
        victim.write_text("mine")
        victim.chmod(0o666)
        found = {member.student: member for member in fake_class.members(FILL, str(victim), 0) if member.student in self.WHO}
        self.assertEqual(sorted(found), sorted(self.WHO))
        for member in found.values():
            self.put(f"{member.student}/kernel.cuh", member.text)
        file = self.home / "marks.json"
        errors = io.StringIO()

        def briefly(exercise: exercises.Exercise, text: str, shown_as: str) -> exercises.Verdict:
            return exercise._run(text, shown_as, "--inputs", "normal")[0]  # the class of a hundred has every trial

        with mock.patch.object(exercises.Exercise, "_try", briefly), contextlib.redirect_stdout(errors), contextlib.redirect_stderr(errors):
            self.assertEqual(grade.main([str(self.handed_in), "--exercise", "02a", "--json", str(file)]), 0, errors.getvalue())
        marked = json.loads(file.read_text())
        for each in marked["submissions"]:
            with self.subTest(each["student"]):
                member = found[each["student"]]
                self.assertEqual((each["reason"], each["score"]), (member.reason, 100 if member.reason == "passed" else 0), each["said"])
                self.assertIn(member.says, each["said"])
        if fake_class.isolated():
            self.assertEqual(victim.read_text(), "mine")


if __name__ == "__main__":
    unittest.main()
