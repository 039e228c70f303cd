"""A new rung is a new directory and nothing else: build, verbs, scripts and chapters take it up.

    python3 -m tools.tests.adds_a_rung_tests LADDER

In a copy of the repository, every place that holds rungs (the top level and each part) gets a copy of one of its rungs under
another name, which starts from the one that it copies. No other file is touched. Building the copy takes minutes, so this
runs when a release is proven, and with .ci/nightly:   ctest -C release -R adds_a_rung
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools.paths import ROOT
from tools.tests.rungs import Rung, Rungs, step

LADDER = ""
FILES = ("kernel.cuh", "stage.cu", "counts.tsv", "README.md", "drawing*")  # what makes a rung; its claims are about that rung alone


def run(*command: str | Path, cwd: Path, may_skip: bool = False, **environment: str) -> str:
    """What it prints; a failure is the test's, with all that it said. With `may_skip`, 77 is none: nothing to do."""
    result = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True,
                            env={**os.environ, **environment})
    if result.returncode != 0 and not (may_skip and result.returncode == 77):
        raise AssertionError(f"{' '.join(map(str, command))}: exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
    return result.stdout


class AddsARung(unittest.TestCase):
    scratch: Path
    added: dict[str, Rung]  # by its name, the rung that it is a copy of
    rungs: Rungs

    @classmethod
    def setUpClass(cls) -> None:
        directory = tempfile.TemporaryDirectory(prefix="adds_a_rung_")
        cls.addClassCleanup(directory.cleanup)
        cls.scratch = Path(directory.name) / "flash-ladder"
        for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
            if name and (ROOT / name).is_file():
                (cls.scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, cls.scratch / name)
        cls.commit("As it was")
        cls.add_rungs(Rungs(LADDER).all)
        cls.commit("One rung more in each part")
        cls.build = cls.scratch / "build"
        run("cmake", "-S", ".", "-B", cls.build, "-DLADDER_CUDA=OFF", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", cwd=cls.scratch)
        run("cmake", "--build", cls.build, "--parallel", str(os.cpu_count() or 1), "--target", "ladder", cwd=cls.scratch)
        cls.rungs = Rungs(str(cls.build / "ladder"))

    @classmethod
    def commit(cls, message: str) -> None:
        author = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "init.defaultBranch=main")
        run("git", *author, "init", "-q", cwd=cls.scratch)
        run("git", "add", "-A", cwd=cls.scratch)
        run("git", *author, "commit", "-q", "-m", message, cwd=cls.scratch)

    @classmethod
    def add_rungs(cls, rungs: list[Rung]) -> None:
        cls.added = {}
        for part in dict.fromkeys(rung["part"] for rung in rungs):
            copied = min((rung for rung in rungs if rung["part"] == part), key=lambda rung: len(rung["variants"]))
            letters = re.match("[a-z]*", copied["number"])[0]  # type: ignore[index]
            name = f"{letters}{98 - len(cls.added)}_added{len(cls.added)}"
            source, target = cls.scratch / copied["directory"], cls.scratch / part / name
            target.mkdir()
            for file in sorted(path.name for pattern in FILES for path in source.glob(pattern)):
                text = (source / file).read_text()
                if file == "stage.cu":
                    text, names = re.subn(r'\.name = "[^"]*"', f'.name = "{name}"', text)
                    text = re.sub(r'\.previous = "[^"]*",\n', "", text)
                    text = text.replace(f'.name = "{name}",', f'.name = "{name}",\n    .previous = "{copied["stage"]}",')
                    assert names == 1 and text.count(".previous") == 1
                if file == "README.md":
                    text = f"# {name}: a copy\n" + text.partition("\n")[2]
                (target / file).write_text(text)
            cls.added[name] = copied

    def ladder(self, *arguments: str) -> str:
        return run(self.build / "ladder", *arguments, cwd=self.scratch)

    def script(self, module: str, *words: str, may_skip: bool = False) -> str:
        return run(sys.executable, "-m", f"tools.{module}", *words, cwd=self.scratch, may_skip=may_skip, LADDER=str(self.build / "ladder"))

    def test_describe_knows_where_they_stand(self) -> None:
        for name, copied in self.added.items():
            with self.subTest(name):
                rung = self.rungs.by_name[name]
                self.assertEqual((rung["part"], rung["previous"]), (copied["part"], copied["stage"]))
                self.assertGreater(rung["order"], self.rungs.by_name[copied["stage"]]["order"])
                self.assertEqual(rung["variants"], copied["variants"])

    def test_check_and_explain(self) -> None:
        for name, copied in self.added.items():
            with self.subTest(name):
                n = str(max(2 * step(copied), 64))
                checked = self.ladder("check", name.partition("_")[0], "--on", "cpu", "--n", n, "--inputs", "normal")
                self.assertIn("right", checked)
                explained = self.ladder("explain", name, "--n", n)
                self.assertRegex(explained, rf"predicted +counted +{copied['stage']}\b")

    def test_rung_diff_compares_with_what_was_copied(self) -> None:
        for name, copied in self.added.items():
            self.assertIn(f"{name}: 0 changed lines since {copied['stage']}", self.script("evidence.rung_diff", name))

    def test_plots_readme_and_chapters_are_renewed_and_nothing_else(self) -> None:
        for figure in ("tflops_per_rung", "time_over_n"):
            self.script("plots", figure, "docs/results/h200.csv")
        for figure in ("bytes_over_n", "memory_over_n", "roofline"):
            self.script("plots", figure, "docs/results/h200_traffic.csv", may_skip=True)
        for document in ("readme", "chapters", "draw"):
            self.script(f"site.{document}")
            self.script(f"site.{document}", "--check")
        changed = [line[3:] for line in run("git", "status", "--porcelain", cwd=self.scratch).splitlines()]
        chapters = {f"{rung['directory']}/README.md" for rung in self.rungs.all}
        others = [file for file in changed if file not in chapters | {"README.md", "docs/ladder.md"} and not file.startswith(("docs/figures/", "docs/drawings/"))]
        self.assertEqual(others, [])
        table = (self.scratch / "docs" / "ladder.md").read_text()
        for name in self.added:
            self.assertIn(name, table)


if __name__ == "__main__":
    LADDER = sys.argv.pop(1)
    unittest.main()
