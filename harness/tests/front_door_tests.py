"""The front door and the Makefile, with stubs in place of cmake, ctest, apt-get and the built program."""
from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("basename bash cat dirname echo env grep make mktemp nproc pwd readlink rm sed sh sort tail tr true mkdir touch "
         "chmod cp").split()

CMAKE = """#!/bin/bash
echo "cmake $*" >> "$STUB_LOG"
if [[ $1 == -S ]]; then
  echo "-- some detail"; echo "-- flash-ladder: GPU half OFF (stub)"
  [[ ${STUB_CONFIGURE:-ok} == ok ]] || { echo "CMake Error: stub" >&2; exit 1; }
  mkdir -p "$4"; touch "$4/CMakeCache.txt"
else
  [[ ${STUB_BUILD:-ok} == ok ]] || { echo "kernel.cuh:7: error: stub"; exit 1; }
  cp "$STUB_PROGRAM" "$2/ladder"
fi
"""
PROGRAM = """#!/bin/bash
echo "ladder $*" >> "$STUB_LOG"
echo "out:$* in $PWD"
case ${1:-} in check) exit "${STUB_CHECK:-0}" ;; bench) exit "${STUB_BENCH:-0}" ;; esac
"""
CTEST = """#!/bin/bash
echo "ctest $*" >> "$STUB_LOG"
while [[ $# -gt 0 ]]; do [[ $1 == --output-junit ]] && junit=$2; shift; done
echo "<testcase name=\\"01_base\\" classname=\\"x\\" time=\\"0\\" status=\\"${STUB_TEST:-run}\\">" > "$junit"
exit "${STUB_CTEST:-0}"
"""
# Installing makes the packages' programs appear.
APT = """#!/bin/bash
echo "apt-get $*" >> "$STUB_LOG"
[[ ${STUB_APT:-ok} == ok ]] || { echo "E: Unable to locate package stub" >&2; exit 100; }
cp "$STUB_TOOLS"/* "$STUB_BIN/"
"""
COMPILER = """#!/bin/bash
case $1 in -print-file-name=*) echo "/stub/${1#*=}" ;; *) echo "${STUB_HEADERS_MISSING:-}" ;; esac
"""


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


class Door(unittest.TestCase):
    """A copy of the front door with one stage, in a world where only the stubs exist."""

    def setUp(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.repository, self.bin, self.tools = (self.home / name for name in ("repo", "bin", "tools"))
        for folder in (self.repository / "01_base", self.bin, self.tools, self.home / "elsewhere"):
            folder.mkdir(parents=True)
        (self.repository / "01_base" / "stage.cu").touch()
        for name in ("ladder", "Makefile"):
            shutil.copy(ROOT / name, self.repository / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        write_program(self.tools / "cmake", CMAKE)
        write_program(self.tools / "ctest", CTEST)
        write_program(self.tools / "c++", COMPILER)
        write_program(self.tools / "python3", '#!/bin/bash\necho "python3 $1 $2" >> "$STUB_LOG"\n')
        write_program(self.tools / "ninja", "#!/bin/bash\n")
        write_program(self.home / "program", PROGRAM)
        self.log = self.home / "log"
        self.log.touch()

    def install_tools(self) -> None:
        for tool in self.tools.iterdir():
            shutil.copy(tool, self.bin / tool.name)

    def run_door(self, *arguments: str, program: str = "./ladder", user: str | None = None, **environment: str):
        variables = {"PATH": str(self.bin), "HOME": str(self.home), "STUB_LOG": str(self.log),
                     "STUB_PROGRAM": str(self.home / "program"), "STUB_BIN": str(self.bin),
                     "STUB_TOOLS": str(self.tools), **environment}
        return subprocess.run([program, *arguments], cwd=self.repository, env=variables, text=True, user=user,
                              capture_output=True, stdin=subprocess.DEVNULL, timeout=60)

    def calls(self) -> str:
        return self.log.read_text()


class Climbing(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_builds_checks_and_prints_the_table(self) -> None:
        run = self.run_door()
        self.assertEqual(run.returncode, 0, run.stderr)
        programs = [line.split()[0] for line in self.calls().splitlines()]
        self.assertEqual(programs, ["cmake", "cmake", "ladder", "ladder"])
        self.assertIn("ladder check\nladder \n", self.calls())
        self.assertIn("-G Ninja", self.calls())
        self.assertIn("--target ladder\n", self.calls())
        self.assertIn("GPU half OFF (stub)", run.stderr)
        self.assertNotIn("some detail", run.stderr)
        self.assertNotIn("\033", run.stdout + run.stderr)

    def test_a_failed_check_still_prints_the_table_and_fails(self) -> None:
        run = self.run_door(STUB_CHECK="1")
        self.assertEqual(run.returncode, 1)
        self.assertIn("ladder check\nladder \n", self.calls())

    def test_an_interrupted_check_ends_the_climb(self) -> None:
        run = self.run_door(STUB_CHECK="130")
        self.assertEqual(run.returncode, 130)
        self.assertTrue(self.calls().endswith("ladder check\n"), self.calls())

    def test_the_second_climb_installs_nothing_and_keeps_the_generator(self) -> None:
        self.run_door()
        self.log.write_text("")
        self.assertEqual(self.run_door().returncode, 0)
        self.assertNotIn("apt-get", self.calls())
        self.assertNotIn("-G", self.calls())

    def test_a_failed_configuration_shows_why(self) -> None:
        run = self.run_door(STUB_CONFIGURE="broken")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("CMake Error: stub", run.stderr)
        self.assertNotIn("ladder", self.calls().replace(str(self.home), ""))

    def test_a_failed_build_shows_why(self) -> None:
        run = self.run_door("check", "3", STUB_BUILD="broken")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("kernel.cuh:7: error: stub", run.stderr)

    def test_cmake_arguments_and_build_directory_come_from_the_environment(self) -> None:
        self.run_door(LADDER_CMAKE="-DLADDER_WERROR=ON -DLADDER_CUDA=OFF", LADDER_BUILD=str(self.home / "other"))
        self.assertIn(f"-B {self.home}/other -G Ninja -DLADDER_WERROR=ON -DLADDER_CUDA=OFF", self.calls())


class Words(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_a_verb_keeps_its_arguments_directory_output_and_exit_code(self) -> None:
        for code in ("0", "1", "2", "77", "130"):
            run = subprocess.run(
                [str(self.repository / "ladder"), "check", "a b", "--json", "-"], cwd=self.home / "elsewhere", text=True,
                capture_output=True, stdin=subprocess.DEVNULL,
                env={"PATH": str(self.bin), "STUB_LOG": str(self.log), "STUB_PROGRAM": str(self.home / "program"),
                     "STUB_CHECK": code})
            self.assertEqual(run.returncode, int(code))
            self.assertEqual(run.stdout, f"out:check a b --json - in {self.home}/elsewhere\n")

    def test_a_verb_is_quiet_and_builds_what_changed(self) -> None:
        self.run_door()
        self.log.write_text("")
        run = self.run_door("bench", "03", "--burst")
        self.assertEqual(run.stderr, "")
        self.assertIn("--target ladder\nladder bench 03 --burst\n", self.calls())

    def test_help_needs_no_build(self) -> None:
        run = self.run_door("--help")
        self.assertEqual(run.returncode, 0)
        self.assertIn("./ladder test", run.stdout)
        self.assertEqual(self.calls(), "")

    def test_docs_say_that_they_are_not_there(self) -> None:
        run = self.run_door("docs")
        self.assertEqual(run.returncode, 77)
        self.assertIn("README.md", run.stderr)

    def test_docs_are_built_where_they_are(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root")
        (self.repository / "docs").mkdir()
        (self.repository / "docs" / "conf.py").touch()
        write_program(self.bin / "apt-get", APT)
        run = self.run_door("docs")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(self.calls().endswith("python3 -m sphinx\n"), self.calls())
        self.assertIn("build/site/index.html", run.stderr)
        self.assertNotIn("chromium", self.calls())
        self.assertEqual(self.run_door("docs", "--tests").returncode, 0)
        self.assertRegex(self.calls(), r"apt-get .*install.* chromium chromium-driver")

    def test_docs_refuse_what_they_do_not_know(self) -> None:
        (self.repository / "docs").mkdir()
        (self.repository / "docs" / "conf.py").touch()
        run = self.run_door("docs", "--test")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--tests, not --test", run.stderr)

    def test_build_sets_up_and_runs_nothing(self) -> None:
        for arguments, target in (((), "all"), (("ladder",), "ladder")):
            self.log.write_text("")
            self.assertEqual(self.run_door("build", *arguments).returncode, 0)
            self.assertTrue(self.calls().endswith(f"--target {target}\n"), self.calls())


class Tests(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_runs_ctest(self) -> None:
        run = self.run_door("test")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("--target all\nctest --test-dir", self.calls())

    def test_hands_arguments_to_ctest(self) -> None:
        self.run_door("test", "-L", "03")
        self.assertRegex(self.calls(), r"ctest .* -L 03\n")

    def test_fails_as_ctest_does(self) -> None:
        self.assertEqual(self.run_door("test", STUB_CTEST="8").returncode, 8)

    def test_fails_when_a_stage_was_not_emulated(self) -> None:
        run = self.run_door("test", STUB_TEST="notrun")
        self.assertEqual(run.returncode, 1)
        self.assertIn("No emulator test of 01_base ran", run.stderr)


class Installing(Door):
    def test_asks_apt_for_what_is_missing_and_says_what(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root")
        write_program(self.bin / "apt-get", APT)
        run = self.run_door("test")
        self.assertEqual(run.returncode, 0, run.stderr)
        for package in ("g++", "cmake", "ninja-build", "libboost-context-dev", "catch2"):
            self.assertRegex(self.calls(), rf"apt-get .*install.* {package}".replace("+", r"\+"))
            self.assertIn(package, run.stderr)

    def test_only_the_missing_header_is_installed(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.install_tools()
        write_program(self.bin / "apt-get", APT)
        self.run_door(STUB_HEADERS_MISSING="libfmt-dev")
        self.assertRegex(self.calls(), r"apt-get .*no-install-recommends libfmt-dev\n")

    def test_says_why_apt_failed(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root")
        write_program(self.bin / "apt-get", APT)
        run = self.run_door(STUB_APT="broken")
        self.assertEqual(run.returncode, 77)
        self.assertIn("Unable to locate package stub", run.stderr)
        self.assertIn("apt-get could not install: ", run.stderr)
        self.assertIn("apt-get update", self.calls())

    def test_without_apt_lists_what_to_install(self) -> None:
        run = self.run_door()
        self.assertEqual(run.returncode, 77)
        self.assertIn("libcli11-dev", run.stderr)
        self.assertIn("no apt-get", run.stderr)

    def test_without_root_and_sudo_prints_the_command(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root to become somebody else")
        write_program(self.bin / "apt-get", APT)
        self.home.chmod(0o755)
        run = self.run_door(user="nobody")
        self.assertEqual(run.returncode, 77)
        self.assertRegex(run.stderr, r"As root, run:\n  apt-get install .*cmake")


class Make(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_a_stage_is_checked_timed_and_explained(self) -> None:
        run = self.run_door("01_base", program="make", STUB_BENCH="77")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("ladder check 01_base\n", self.calls())
        self.assertIn("ladder bench 01_base\n", self.calls())
        self.assertIn("ladder explain 01_base\n", self.calls())

    def test_a_wrong_stage_fails(self) -> None:
        self.assertNotEqual(self.run_door("01_base", program="make", STUB_CHECK="1").returncode, 0)
        self.assertNotEqual(self.run_door("01_base", program="make", STUB_BENCH="1").returncode, 0)
        self.assertNotEqual(self.run_door("09_nothing", program="make").returncode, 0)

    def test_a_new_rung_becomes_a_target_by_existing(self) -> None:
        (self.repository / "42_new").mkdir()
        (self.repository / "42_new" / "stage.cu").touch()
        self.assertIn("01_base 42_new", self.run_door("help", program="make").stdout)


if __name__ == "__main__":
    unittest.main()
