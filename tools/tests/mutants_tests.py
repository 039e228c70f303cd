"""The program that makes wrong kernels: its operators on small texts, and what it says of a check that lets one pass."""
from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import rungs
from tools.mutants import draw, invented, judge, mutants, operators, program, schemata, syntax
from tools.tests import fake_ladder


def function(body: str, head: str = "void f(float x, float y, int i, int j)") -> str:
    return f"{head} {{\n{body}\n}}\n"


def changes(text: str, operator: str | None = None) -> list[str]:
    """Each mutant's changed line."""
    return [mutant.changed for mutant in operators.mutants_of(text) if operator in (None, mutant.operator)]


class Seed(unittest.TestCase):
    def test_it_is_the_one_given_or_the_commits(self) -> None:
        self.assertEqual(draw.seed(7), 7)
        tree = subprocess.CompletedProcess([], 0, stdout="00010abc\n")
        with mock.patch("subprocess.run", return_value=tree):
            self.assertEqual(draw.seed(None), 0x10)
            self.assertEqual(draw.seed(0), 0)

    def test_without_git_it_is_drawn(self) -> None:
        for error in (FileNotFoundError("git"), subprocess.CalledProcessError(128, "git")):
            with mock.patch("subprocess.run", side_effect=error):
                self.assertGreater(len({draw.seed(None) for _ in range(9)}), 1)


class Invented(unittest.TestCase):
    ENTRY = "== twice: 99_none, wrong\n-  a = 1;\n+  a = 2;\n@@\n=  b;\n+  b;\n=\n"

    def read(self, text: str) -> list[invented.Invention]:
        return invented.parsed(f"# why\n\n# which\n\n{text}")

    def test_an_entry_changes_the_kernel(self) -> None:
        one, other = self.read(self.ENTRY + "\n== slow: 98_none, passes: off by 1e-6\n-x\n+y\n")
        self.assertEqual(one.kernel("  a = 1;\n  b;\n\n  a = 11;\n"), "  a = 2;\n  b;\n  b;\n\n  a = 11;\n")
        self.assertEqual((one.verdict, other.verdict, other.reason), ("wrong", "passes", "off by 1e-6"))

    def test_a_rung_that_has_changed_is_told(self) -> None:
        for text, said in (("  a = 1;\n", "stand 0 times"), ("  a = 1;\n  a = 1;\n  b;\n\n", "stand 2 times")):
            with self.assertRaisesRegex(invented.Unreadable, f"twice: its lines {said}"):
                self.read(self.ENTRY)[0].kernel(text)
        with self.assertRaisesRegex(invented.Unreadable, "stand 0 times"):
            self.read("== nowhere: 99_none, wrong\n+a;\n")[0].kernel("a;\n")

    def test_what_is_no_entry(self) -> None:
        for text in ("== a: 99, good\n-x\n", "== a: 99, passes\n-x\n", "== a: 99, right: why\n-x\n", "== a: 99, wrong\nx\n",
                     "== a: 99, wrong\n", "a: 99, wrong\n-x\n", "== a: 99, right\n-x\n\n== a: 98, right\n-x\n"):
            with self.subTest(text), self.assertRaises(invented.Unreadable):
                self.read(text)

    def test_the_kind_that_an_entry_names_has_to_be_there(self) -> None:
        entry = next(one for one in invented.parsed(invented.FILE.read_text()) if (one.verdict, one.reason) == ("wrong", "in-flight-read"))
        rungs.known()
        for failures, said in (([("nan_output", ""), ("emulator_report", "in-flight-read")], "wrong"),
                               ([("nan_output", "")], "wrong: nan_output"), ([("counts_differ", "")], "counts: counts_differ")):
            rows = [{"failures": [{"kind": kind, "detail": detail} for kind, detail in failures]}]
            with mock.patch("subprocess.run", return_value=subprocess.CompletedProcess([], 1, stdout=json.dumps(rows))):
                self.assertEqual(invented.judged(entry), said)

    def test_a_kernel_that_nobody_answers_for_ends_no_run(self) -> None:
        entry = next(one for one in invented.parsed(invented.FILE.read_text()))
        rungs.known()
        with mock.patch("subprocess.run", side_effect=subprocess.TimeoutExpired("ladder", invented.LONGEST)):
            self.assertEqual(invented.judged(entry), f"no answer after {invented.LONGEST} s")

    def test_every_entry_fits_the_rung_of_today(self) -> None:
        for invention in invented.parsed(invented.FILE.read_text()):
            with self.subTest(invention.name):
                invention.kernel(rungs.named(invention.rung).kernel.read_text())

    def test_the_words_and_exit_codes(self) -> None:
        command = [sys.executable, "-m", "tools.mutants.invented"]
        none = subprocess.run([*command, "no_such_name"], capture_output=True, text=True, check=False)
        self.assertEqual((none.returncode, none.stdout), (2, ""))
        self.assertIn("no name in invented.txt contains no_such_name", none.stderr)


class Operators(unittest.TestCase):
    def test_synchronisation_is_dropped_and_moved_past_the_next_statement(self) -> None:
        found = [mutant for mutant in operators.mutants_of(function("__syncthreads();\nint k = 0;\ng(i);\n"))
                 if mutant.original == "__syncthreads();"]
        self.assertEqual([(mutant.operator, mutant.changed) for mutant in found],
                         [("drop", ""), ("move", "after g(i);")])
        text = function("__syncthreads();\nint k = 0;\ng(i);\n")
        moved = " ".join(operators.apply(text, found[1].edits).split())
        self.assertIn("{ ; int k = 0; g(i); __syncthreads(); }", moved)

    def test_each_changes_what_it_is_named_for(self) -> None:
        for operator, body, changed in (
                ("move", "cp_async_16(i, j);\ng(i);\n", []),  # a copy, whatever its name begins with
                ("move", "cp_async_commit();\ng(i);\n", ["after g(i);"]),
                ("constant", "g(i + 5);", ["g(i + 6);", "g(i + 4);"]),
                ("constant", "g(i * 5);", ["g(i * 6);"]),
                ("constant", "wait<0>();", ["wait<1>();"]),
                ("constant", "#pragma unroll 2\n// i + 1\n/* j < 2 */ g();", []),
                ("neighbour", "g(a[0], a[3]);", ["g(a[1], a[3]);", "g(a[0], a[2]);"]),
                ("condition", "if (i < j) g();", ["if (true) g();", "if (false) g();"]),
                ("operator", "g(i ^ j % 8);", ["g(i + j % 8);", "g(i ^ j / 8);"]),
                ("bound", "for (int k = 0; k < j; k += 2) g(k);", ["for (int k = 0; k < j - 2; k += 2) g(k);"]),
                ("left-out", "x = fmaxf(x, y);", ["x = x;", "x = y;"]),
                ("uninitialised", "float a[4] = {};\nfloat b = 0.0f;\nconst float c = x;\n", ["float a[4];", "float b;"]),
                ("arguments", "g(i, j, x);", ["g(j, i, x);"]),  # those of one type
                ("arguments", "x = fmaxf(x, y);", []),
                (None, 'smem_name(i, 16, "K");\nstatic_assert(2 + 2 == 4, "four");\n', [])):
            with self.subTest(body, operator=operator):
                self.assertCountEqual(changes(function(body), operator), changed)
        self.assertIn("if (i <= j) g();", changes(function("if (i < j) g();"), "operator"))

    def test_terms_of_the_softmax(self) -> None:
        found = changes(function("float s = ex2_approx((x - y) * 2.0f);"))
        for expected in ("float s = ex2_approx((x + y) * 2.0f);", "float s = ex2_approx((x) * 2.0f);", "float s = ex2_approx((x - y));",
                         "float s = -(ex2_approx((x - y) * 2.0f));", "float s = 2 * (ex2_approx((x - y) * 2.0f));",
                         "float s = ex2_approx((x - y) * (2.0f * 1.0005f));"):
            self.assertIn(expected, found)
        self.assertIn("x *= y; x *= y;", changes(function("x *= y;")))

    def test_keys_have_no_line_numbers_and_tell_equal_lines_apart(self) -> None:
        text = function("g(i);\ng(i);\n")
        keys = [mutant.key for mutant in operators.count_occurrences(operators.mutants_of(text))]
        self.assertEqual(keys, ["drop: `g(i);` -> ``", "drop: `g(i);` -> `` #2"])
        moved = [mutant.key for mutant in operators.count_occurrences(operators.mutants_of("\n\n" + text))]
        self.assertEqual(keys, moved)

    def test_unbalanced_text_is_refused(self) -> None:
        with self.assertRaises(syntax.NotUnderstood):
            operators.mutants_of("void f() { g(; }")


class Schemata(unittest.TestCase):
    """One program holds all mutants: each must do what its own text does."""

    BODY = """
      float sum[2] = {};
      int steps = 0;
      float &total = sum[0], *other = &sum[1];
      auto& same = sum[n % 2];
      const float& seen = sum[0];
      int k;
      for (k = 0; k < n; k += 2) {
        sum[0] += k * 0.5f;
        if (k > 2) steps += 1;
        total += 0.25f;
        same += *other + seen;
      }
      return sum[0] + 10 * steps;
    """

    def run_program(self, directory: Path, text: str, number: int) -> str:
        source, program = directory / "program.cpp", directory / "program"
        source.write_text(text)
        compiled = subprocess.run(["c++", "-std=c++20", "-w", "-ftrivial-auto-var-init=pattern", "-o", program, source],
                                  capture_output=True, text=True)
        self.assertEqual(compiled.returncode, 0, compiled.stderr)
        return self.output(program, number)

    @staticmethod
    def output(program: Path, number: int) -> str:
        return subprocess.run([program], capture_output=True, text=True, timeout=60,
                              env={**os.environ, schemata.VARIABLE: str(number)}).stdout

    def test_every_mutant_behaves_as_if_compiled_alone(self) -> None:
        text = function(self.BODY, "float f(int n)")
        main = '#include <cstdio>\nint main() { std::printf("%g", f(6)); }\n'
        all_of_them = operators.mutants_of(text)
        self.assertEqual({mutant.original for mutant in all_of_them if mutant.unit.kind == "apart"},
                         {"float &total = sum[0], *other = &sum[1];", "auto& same = sum[n % 2];",
                          "const float& seen = sum[0];", "for (k = 0; k < n; k += 2) {"})
        found = schemata.number([mutant for mutant in all_of_them if mutant.unit.kind != "apart"])
        self.assertGreater(len(found), 12)
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            schema = schemata.PROLOGUE + schemata.Schema(text, found).render() + main
            self.assertEqual(self.run_program(directory, schema, 0), self.run_program(directory, text + main, 0))
            self.run_program(directory, schema, 0)
            together = {mutant.number: self.output(directory / "program", mutant.number) for mutant in found}
            for mutant in found[::4]:  # each costs a compilation
                if mutant.operator == "uninitialised":
                    continue
                alone = schemata.PROLOGUE + operators.apply(text, mutant.edits) + main
                self.assertEqual(together[mutant.number], self.run_program(directory, alone, 0), mutant.key)

    def test_lines_of_the_compilers_errors_name_their_mutant(self) -> None:
        text = function("g(i, j);", "void f(int i, int j)")
        found = schemata.number(operators.mutants_of(text))
        lines = schemata.lines_of(schemata.Schema(text, found).render())
        self.assertEqual(set(lines.values()), {mutant.number for mutant in found})


class Judging(unittest.TestCase):
    """With a toy for `ladder check`: what it lets pass survives."""

    def outcome(self, script: str, judged=judge.Check.judge):
        with tempfile.TemporaryDirectory() as name:
            program = Path(name) / "check"
            program.write_text("#!/bin/sh\nfor last; do :; done\n[ $LADDER_MUTANT = 0 ] && exit 0\n" + script)
            program.chmod(0o755)
            check = judge.Check(program, "toy", Path(name))
            check.limits = judge.Limits(1)
            mutant = operators.mutants_of(function("g();"))[0]
            mutant.number = 1
            return judged(check, mutant)

    def wrong(self, *kinds: str) -> str:
        failures = ",".join(f'{{"kind":"{kind}"}}' for kind in kinds)
        return f"""echo '[{{"inputs":"normal","failures":[{failures}]}}]' > "$last"; exit 1"""

    def test_verdicts(self) -> None:
        self.assertEqual(self.outcome("exit 0").verdict, judge.SURVIVED)
        self.assertEqual(self.outcome(self.wrong("wrong_result")).verdict, judge.ANSWERS)
        self.assertEqual(self.outcome(self.wrong("counts_differ", "nan_output")).verdict, judge.ANSWERS)
        self.assertEqual(self.outcome("kill -SEGV $$").detail, "SIGSEGV")
        self.assertEqual(self.outcome("while :; do :; done").verdict, judge.TIMEOUT)

    def test_counts_alone_are_a_verdict_of_their_own(self) -> None:
        self.assertEqual(self.outcome(self.wrong("counts_differ", "conflicts_differ")).verdict, judge.COUNTS)

    def test_what_the_default_variant_lets_pass_is_looked_for_in_the_others(self) -> None:
        script = 'case "$*" in *--ablate*) ' + self.wrong("wrong_result") + ";; esac\nexit 0"
        self.assertEqual(self.outcome(script).verdict, judge.ANSWERS)

    def test_a_first_look_asks_for_less(self) -> None:
        script = 'case "$*" in *--quick*) exit 0;; esac\n' + self.wrong("wrong_result")
        self.assertFalse(self.outcome(script, judge.Check.first_look))
        self.assertTrue(self.outcome(self.wrong("wrong_result"), judge.Check.first_look))

    def test_a_check_that_refuses_the_original_is_said(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            program = Path(name) / "check"
            program.write_text("#!/bin/sh\nexit 1\n")
            program.chmod(0o755)
            with self.assertRaises(judge.Refused):
                judge.Check(program, "toy", Path(name))


class Equivalents(unittest.TestCase):
    def read(self, text: str) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "mutants.txt"
            path.write_text(text)
            return mutants.read_equivalents(path)

    def results(self, listed: dict[str, str], verdict: str) -> mutants.Results:
        mutant = operators.count_occurrences(operators.mutants_of(function("g(i);")))[0]
        results = mutants.Results("toy", listed, Path("mutants.txt"), known={mutant.key})
        results.add(mutant, judge.Outcome(verdict, "", 0))
        return results

    KEY = "drop: `g(i);` -> ``"

    def test_entries_have_reasons(self) -> None:
        self.assertEqual(self.read("# why\n" + self.KEY + "\n  Nobody\n  needs it.\n"), {self.KEY: "Nobody needs it."})
        self.assertEqual(self.read(f"{self.KEY}\nother\n  why\n\nthird\n  not\n"), {self.KEY: "why", "other": "why", "third": "not"})
        for text in (self.KEY + "\n", self.KEY + "\n\nother\n  why\n", self.KEY + "\n# of g\nother\n  why\n", "  a reason\n",
                     (self.KEY + "\n  why\n") * 2, f"{self.KEY}\n{self.KEY}\n  why\n"):
            with self.assertRaises(mutants.UsageError):
                self.read(text)

    def test_a_survivor_is_printed_with_its_line_and_fails(self) -> None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(mutants.report([self.results({}, judge.SURVIVED)]), 1)
        self.assertIn(":2: nobody noticed\n" + self.KEY + "\n", out.getvalue())

    def test_a_listed_survivor_is_equivalent(self) -> None:
        results = self.results({self.KEY: "why"}, judge.SURVIVED)
        self.assertEqual((results.survivors(), results.wrong_entries(), results.score()), ([], [], 1.0))
        self.assertEqual(results.counts()["equivalent"], 1)

    def test_a_known_hole_is_no_equivalent(self) -> None:
        results = self.results({self.KEY: "Missing check: of what g does."}, judge.SURVIVED)
        self.assertEqual((results.counts()["survived"], results.score()), (1, 0.0))
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(mutants.report([results]), 1)
            self.assertEqual(mutants.report([results], sample=True), 0)

    def test_stale_and_killed_entries_are_refused(self) -> None:
        stale = self.results({"drop: `h();` -> ``": "why"}, judge.ANSWERS)
        self.assertRegex(stale.wrong_entries()[0], "No mutant has this name")
        killed = self.results({self.KEY: "why"}, judge.ANSWERS)
        self.assertRegex(killed.wrong_entries()[0], "listed, and killed")
        with contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(mutants.report([killed]), 1)

    def test_the_table_keeps_other_rows(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "mutants.csv"
            results = self.results({}, judge.ANSWERS)
            mutants.write_csv(path, [results], "c0ffee", "2026-01-01")
            results.name = "another"
            mutants.write_csv(path, [results], "c0ffee", "2026-01-02")
            self.assertEqual(path.read_text().splitlines()[1:], ["another,1,0,1,0,0,0,0,1.0000,c0ffee,2026-01-02",
                                                                 "toy,1,0,1,0,0,0,0,1.0000,c0ffee,2026-01-01"])


class CommandLine(unittest.TestCase):
    def refused(self, *arguments: str, **environment: str) -> str:
        result = subprocess.run([sys.executable, "-m", "tools.mutants.mutants", *arguments], capture_output=True, text=True,
                                env={**os.environ, **environment})
        self.assertEqual(result.returncode, 2, result.stderr)
        return result.stderr

    def test_bad_input(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "build.ninja").write_text("")
            build = ("--build", name)
            invented = str(fake_ladder.write(Path(name) / "ladder"))
            self.assertRegex(self.refused("03_irn", *build, LADDER=invented), "no stage '03_irn'. Nearest: 03_iron")
            self.assertRegex(self.refused("--sample", "0", *build), "more than 0")
            self.assertRegex(self.refused("--jobs", "0", *build), "at least 1")
            self.assertRegex(self.refused("--seed", "1", *build), "belongs to --sample")
            self.assertRegex(self.refused("--sample", "5", "--csv", "x.csv", *build), "whole rungs")
            self.assertRegex(self.refused("--log", f"{name}/none/x", *build), "no directory")
            self.assertRegex(self.refused("--build", f"{name}/none"), "no Ninja build")

    def test_a_stage_is_chosen_once_by_any_of_its_names(self) -> None:
        last = rungs.known()[-1]
        self.assertEqual(mutants.choose_stages([last.name, last.number, last.word, last.directory]), [last])


class Rungs(unittest.TestCase):
    def test_every_rung_is_understood_and_its_list_names_mutants_that_there_are(self) -> None:
        for rung in rungs.known():
            with self.subTest(rung.name):
                found = program.mutants_of_rung(rung.path)
                kinds = {mutant.operator for mutant in found}
                text = rung.kernel.read_text(encoding="utf-8")
                says_parts, is_a_part = "common/words/" in text, "__global__" not in text  # and so has less to change, or hardly anything
                self.assertGreater(len(found), 5 if is_a_part else 20 if says_parts else 100)
                if not is_a_part:
                    self.assertGreaterEqual(kinds, {"drop", "constant", "operator"} | (set() if says_parts else {"left-out", "sign", "bound"}))
                keys = [mutant.key for mutant in found]
                self.assertEqual(len(keys), len(set(keys)))
                self.assertFalse([key for key in keys if "ladder::" in key])
                self.assertEqual(set(mutants.read_equivalents(rung.path / "mutants.txt")) - set(keys), set())

    @unittest.skipUnless("LADDER" in os.environ, "needs a build")
    def test_a_bool_that_nobody_sets_does_not_compile(self) -> None:
        """It reads as false in both builds, so that nothing else would notice."""
        build = program.Build(Path(os.environ["LADDER"]).parent)
        with tempfile.TemporaryDirectory() as name:
            for known in rungs.known():
                rung = program.Rung(known.path, build, Path(name), jobs=1)
                unset = [mutant for mutant in rung.mutants if mutant.operator == "uninitialised" and "bool " in mutant.changed]
                if unset:
                    break
            rung.prepare()
            self.assertTrue(rung.refused(unset[0]), unset[0].key)
            unset[0].edits.clear()  # the rung as it is
            self.assertFalse(rung.refused(unset[0]))


if __name__ == "__main__":
    unittest.main()
