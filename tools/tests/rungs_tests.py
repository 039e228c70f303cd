"""What every script learns of the rungs from the built program, and what it says when that cannot be asked."""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import changes, rungs
from tools.paths import ROOT
from tools.tests import fake_ladder


class Invented(unittest.TestCase):
    """On an invented ladder."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(rungs.known.cache_clear)
        self.ask(fake_ladder.write(self.folder / "ladder"))

    def ask(self, program: Path) -> None:
        rungs.known.cache_clear()
        patch = mock.patch.dict(os.environ, {"LADDER": str(program), "LADDER_ROOT": str(self.folder)})
        patch.start()
        self.addCleanup(patch.stop)

    def test_they_come_in_the_order_of_the_ladder(self) -> None:
        self.assertEqual(rungs.names(), [fake_ladder.LINE[0], fake_ladder.BRANCH, *fake_ladder.LINE[1:]])
        self.assertEqual([part.name for part in rungs.parts()], ["", "side"])
        self.assertEqual(rungs.parts()[1].title, "The part side")
        self.assertEqual(rungs.named("2").previous, fake_ladder.LINE[1])
        self.assertEqual(rungs.named("1").path, self.folder / fake_ladder.LINE[1])

    def test_a_rung_has_several_names(self) -> None:
        for typed in ("3", "03", "iron", "03_iron", "03_iron/", "IRON"):
            self.assertEqual(rungs.named(typed).name, "03_iron")
        for typed in ("p1", "p01", "clay", "p01_clay", "side/p01_clay/"):
            self.assertEqual(rungs.named(typed).name, fake_ladder.BRANCH)
        with self.assertRaisesRegex(rungs.RungsError, "no stage 'irn'. Nearest: 03_iron.\n  All 9:  ./ladder list"):
            rungs.named("irn")
        self.assertEqual(len(rungs.chosen([])), len(fake_ladder.LINE) + 1)

    def test_rows_of_results_are_sorted_by_it(self) -> None:
        rows = ["fa2", "02_brick", "01_wood[64x32, 2 warps]", "p01_clay", "01_wood", "00_stone"]
        self.assertEqual(sorted(rows, key=rungs.position),
                         ["00_stone", "p01_clay", "01_wood", "01_wood[64x32, 2 warps]", "02_brick", "fa2"])

    def test_no_program_and_a_broken_one(self) -> None:
        self.ask(self.folder / "none")
        with self.assertRaisesRegex(rungs.NotBuilt, "No such file.*\n.*./ladder build ladder"):
            rungs.known()
        for rest, said in (("sys.exit(3)", "exits with 3"), ("print('no')", "writes no JSON"), ("print('[]')", "has no rung"),
                           ("print('[{}]')", "older than this script")):
            program = self.folder / "broken"
            program.write_text(f"#!{sys.executable}\nimport sys\n{rest}\n")
            program.chmod(0o755)
            self.ask(program)
            with self.assertRaisesRegex(rungs.RungsError, said):
                rungs.known()

    def test_where_the_program_of_all_words_is_not_built_that_of_all_rungs_is_asked(self) -> None:
        with mock.patch.dict(os.environ, LADDER_BUILD=str(self.folder)):
            del os.environ["LADDER"]
            (self.folder / "rungs").mkdir()
            (self.folder / "rungs" / "rung_all").touch()
            self.assertEqual(rungs.program(), self.folder / "ladder")
            (self.folder / "ladder").unlink()
            self.assertEqual(rungs.program(), self.folder / "rungs" / "rung_all")

    def test_changed_lines_follow_previous(self) -> None:
        for i, rung in enumerate(rungs.known()):
            rung.path.mkdir(parents=True)
            rung.kernel.write_text("".join(f"line {k}\n" for k in range(i, i + 4)))
        changes.since_previous.cache_clear()
        self.addCleanup(changes.since_previous.cache_clear)
        found = changes.since_previous()
        self.assertEqual(found[fake_ladder.BRANCH], ("00_stone", 2))  # one line less, another more, apart from each other
        self.assertEqual(found["01_wood"], ("00_stone", 4))
        self.assertNotIn("00_stone", found)


class Real(unittest.TestCase):
    """On the built program: what describe says is what there is."""

    def setUp(self) -> None:
        rungs.known.cache_clear()

    def test_the_line_is_short_and_every_rung_hangs_under_it(self) -> None:
        line = [rung.name for rung in rungs.known() if rung.role == "line"]
        self.assertLessEqual(len(line), 28, f"the line has {len(line)} rungs, and may have 28; the last one is {line[-1]}")
        self.assertEqual([rung.name for rung, _ in rungs.by_line()], line)
        self.assertEqual(rungs.known()[0].name, line[0])
        self.assertEqual(sum(1 + len(beside) for _, beside in rungs.by_line()), len(rungs.known()))
        for rung in rungs.known():
            self.assertIn(rung.role, ("line", "branch", "variant", "port", "lost"))
            self.assertEqual(rung.line, rung.name if rung.role == "line" else rungs.by_name()[rung.previous].line, rung.name)
            self.assertEqual(bool(rung.more_lines.why), bool(rung.more_lines.reason), rung.name)

    def test_a_rung_that_changes_many_lines_says_why_in_a_word(self) -> None:
        more = [rung for rung in rungs.known() if rung.more_lines.why]
        other = [rung.name for rung in more if rung.more_lines.why == "other"]
        self.assertEqual({rung.more_lines.why for rung in more}, {"new", "port", "rebuilt", "retold", "other"})
        self.assertLessEqual(10 * len(other), len(more), f"{len(other)} of {len(more)} give another reason than the words that there are: {', '.join(other)}")

    def test_a_stage_without_a_role_is_no_stage(self) -> None:
        stage = '#include "harness/stages/stage.hpp"\nconst ladder::Registration it({.name = "99_none"%s, .idea = "None."});\n'
        for role, said in ((", .role = ladder::Role::lost", ""), ("", "A stage.cu says its rung's role: ")):
            run = subprocess.run([*os.environ.get("CXX", "g++").split(), "-std=c++20", f"-I{ROOT}", "-fsyntax-only", "-x", "c++", "-"],
                                 input=stage % role, capture_output=True, text=True)
            self.assertEqual(run.returncode != 0, bool(said), run.stderr)
            self.assertIn(said, run.stderr)

    def test_every_variant_of_a_kernel_with_a_config_says_it(self) -> None:
        for rung in rungs.known():
            for variant in rung.variants:
                if variant.config:
                    self.assertRegex(variant.config, r"^Config<.+>$")


if __name__ == "__main__":
    unittest.main()
