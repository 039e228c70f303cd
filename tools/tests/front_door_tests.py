"""The front door and the Makefile, with stubs in place of cmake, ctest, apt-get and the built program."""
from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tools.paths import ROOT
from tools.tests.ended import ended

TOOLS = "bash cat chmod cp dirname echo env flock make mkdir nproc readlink realpath rm sed sh sleep sort tail touch tr xargs".split()
HANG_S = 1200  # nothing here takes a tenth of it on the slowest laptop; a limit against hanging for ever

CMAKE = """#!/bin/bash
echo "cmake $*" >> "$STUB_LOG"
if [[ $1 == -S ]]; then
  echo "-- some detail"; echo "-- flash-ladder: GPU half OFF (stub)"
  [[ ${STUB_CONFIGURE:-ok} == ok ]] || { echo "CMake Error: stub" >&2; exit 1; }
  printf 'CMAKE_HOME_DIRECTORY:INTERNAL=%s\nCMAKE_CACHEFILE_DIR:INTERNAL=%s\n' "$2" "$4" > "$4/CMakeCache.txt"
else
  if [[ -n ${STUB_SLOW:-} ]]; then echo "a line of the log"; touch "$STUB_SLOW"; while [[ -e $STUB_SLOW ]]; do sleep 0.01; done; fi
  [[ ${STUB_BUILD:-ok} == ok ]] || { echo "kernel.cuh:7: error: stub"; exit 1; }
  mkdir -p "$2/rungs"
  case "$*" in *rung_*) cp "$STUB_PROGRAM" "$2/rungs/${*: -1}" ;; *) cp "$STUB_PROGRAM" "$2/ladder" ;; esac
fi
"""
PROGRAM = """#!/bin/bash
echo "ladder $*" >> "$STUB_LOG"
echo "out:$* in $PWD"
# Not by touch: bash outlives an interrupt that comes while a child of it ends.
if [[ -n ${STUB_ENDLESS:-} ]]; then : > "$STUB_ENDLESS"; exec sleep 3600; fi
case ${1:-} in check) exit "${STUB_CHECK:-0}" ;; bench) exit "${STUB_BENCH:-0}" ;; esac
"""
CTEST = """#!/bin/bash
echo "ctest $*" >> "$STUB_LOG"
exit "${STUB_CTEST:-0}"
"""
PYTHON = f"""#!/bin/bash
if [[ $2 == *difflib* ]]; then exec {sys.executable} "$@"; fi
echo "python3 ${{*:1:3}}" >> "$STUB_LOG"
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
SUDO = """#!/bin/bash
echo "sudo $*" >> "$STUB_LOG"
[[ $1 == -v ]] && exit "${STUB_SUDO:-0}"
exec "$@"
"""


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


class Door(unittest.TestCase):
    """A copy of the front door with a stage at the top and one in a part, in a world where only the stubs exist."""

    def setUp(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.repository, self.bin, self.tools = (self.home / name for name in ("repo", "bin", "tools"))
        for folder in (self.bin, self.tools, self.home / "elsewhere"):
            folder.mkdir(parents=True)
        for stage in ("01_wood", "side/p02_clay", "build-other/09_copy"):
            (self.repository / stage).mkdir(parents=True)
            (self.repository / stage / "stage.cu").touch()
        (self.repository / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\n")
        (self.repository / "harness").mkdir()
        for name in ("ladder", "Makefile", "harness/stage_names.sh"):
            shutil.copy(ROOT / name, self.repository / name)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        write_program(self.tools / "cmake", CMAKE)
        write_program(self.tools / "ctest", CTEST)
        write_program(self.tools / "c++", COMPILER)
        write_program(self.tools / "python3", PYTHON)
        for tool in ("ninja", "bwrap"):
            write_program(self.tools / tool, "#!/bin/bash\n")
        write_program(self.home / "program", PROGRAM)
        self.log = self.home / "log"
        self.log.touch()

    def install_tools(self) -> None:
        for tool in self.tools.iterdir():
            shutil.copy(tool, self.bin / tool.name)

    def variables(self, **environment: str) -> dict[str, str]:
        return {"PATH": str(self.bin), "HOME": str(self.home), "STUB_LOG": str(self.log),
                "STUB_PROGRAM": str(self.home / "program"), "STUB_BIN": str(self.bin),
                "STUB_TOOLS": str(self.tools), **environment}

    def run_door(self, *arguments: str, program: str = "./ladder", user: str | None = None, ends: int | None = None,
                 **environment: str):
        run = subprocess.run([program, *arguments], cwd=self.repository, env=self.variables(**environment), text=True, user=user,
                             capture_output=True, stdin=subprocess.DEVNULL, timeout=HANG_S)
        return ended(run, ends)

    def start_door(self, *arguments: str, **environment: str) -> subprocess.Popen:
        return subprocess.Popen(["./ladder", *arguments], cwd=self.repository, env=self.variables(**environment), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def wait_until(self, condition) -> None:
        limit = time.monotonic() + HANG_S
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)

    def calls(self) -> str:
        return self.log.read_text()


class Climbing(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_builds_checks_and_prints_the_table(self) -> None:
        run = self.run_door(ends=0)
        programs = [line.split()[0] for line in self.calls().splitlines()]
        self.assertEqual(programs, ["cmake", "cmake", "ladder", "ladder"])
        self.assertIn("ladder check --quick\nladder \n", self.calls())
        self.assertIn("--target rung_all\n", self.calls())
        self.assertIn("GPU half OFF (stub)", run.stderr)
        self.assertNotIn("some detail", run.stderr)
        # Where the program of all words is there, that is the one.
        self.run_door("build", "ladder")
        self.log.write_text("")
        self.run_door()
        self.assertIn("--target ladder\nladder check --quick\nladder \n", self.calls())

    def test_a_failed_check_still_prints_the_table_and_fails(self) -> None:
        self.run_door(STUB_CHECK="1", ends=1)
        self.assertIn("ladder check --quick\nladder \n", self.calls())

    def test_an_interrupted_check_ends_the_climb(self) -> None:
        self.run_door(STUB_CHECK="130", ends=130)
        self.assertTrue(self.calls().endswith("ladder check --quick\n"), self.calls())

    def test_a_failed_configuration_shows_why(self) -> None:
        run = self.run_door(STUB_CONFIGURE="broken", ends=77)
        self.assertIn("CMake Error: stub", run.stderr)
        self.assertNotIn("ladder", self.calls().replace(str(self.home), ""))

    def test_a_failed_build_shows_why(self) -> None:
        run = self.run_door("check", "1", STUB_BUILD="broken")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("kernel.cuh:7: error: stub", run.stderr)

    def test_cmake_arguments_and_build_directory_come_from_the_environment(self) -> None:
        self.run_door(LADDER_CMAKE="-DLADDER_WERROR=ON -DLADDER_CUDA=OFF", LADDER_BUILD=str(self.home / "other"))
        self.assertIn(f"-B {self.home}/other -DLADDER_WERROR=ON -DLADDER_CUDA=OFF", self.calls())


    def test_two_in_one_clone_take_turns(self) -> None:
        slow = self.home / "slow"
        first = self.start_door("build", STUB_SLOW=str(slow))
        self.wait_until(slow.exists)
        second = self.start_door("check", "01")
        assert second.stderr is not None
        waiting = second.stderr.readline()
        self.assertIn("Waiting for another ./ladder, which is at work in build", waiting)
        self.assertNotIn("ladder check", self.calls())
        slow.unlink()
        self.assertEqual(first.wait(HANG_S), 0)
        out, err = second.communicate(timeout=HANG_S)
        self.assertEqual((second.returncode, err), (0, ""))
        self.assertIn("out:check 01", out)
        for stream in (first.stdout, first.stderr):
            stream.close()

    def test_a_moved_clone_configures_anew(self) -> None:
        self.run_door()
        moved = self.home / "a b"
        self.repository = self.repository.rename(moved)
        self.log.write_text("")
        self.run_door("check", "01", ends=0)
        self.assertIn("--fresh", self.calls())
        self.log.write_text("")
        self.run_door()
        self.assertNotIn("--fresh", self.calls())
        # That of another clone is left to CMake, which refuses it.
        shutil.copytree(self.repository, self.home / "other")
        shared, self.repository = str(self.repository / "build"), self.home / "other"
        self.log.write_text("")
        self.run_door("check", "01", LADDER_BUILD=shared)
        self.assertIn(f"cmake -S {self.repository} -B {shared}\n", self.calls())

    def test_a_build_directory_that_cannot_be_written(self) -> None:
        (self.home / "file").touch()
        run = self.run_door(LADDER_BUILD=str(self.home / "file" / "build"), ends=2)
        self.assertIn("Not a directory", run.stderr)
        self.assertIn("LADDER_BUILD=DIRECTORY", run.stderr)
        (self.repository / "build").touch()
        run = self.run_door(ends=77)
        self.assertIn("The build can be elsewhere: LADDER_BUILD=DIRECTORY ./ladder", run.stderr)
        self.assertEqual(self.calls(), "")

    def test_a_long_build_says_that_it_is_at_work(self) -> None:
        self.run_door("build")
        slow = self.home / "slow"
        terminal, end = pty.openpty()
        door = subprocess.Popen(["./ladder", "check", "01"], cwd=self.repository, stdout=subprocess.DEVNULL, stderr=end,
                                env=self.variables(STUB_SLOW=str(slow), TERM="xterm"), stdin=subprocess.DEVNULL)
        os.close(end)
        said = b""
        while not re.search(rb"\rBuilding, [2-9] s: a line of the log ", said):
            said += os.read(terminal, 4096)
        slow.unlink()
        self.assertEqual(door.wait(HANG_S), 0)
        os.close(terminal)
        door = self.start_door("check", "01", STUB_SLOW=str(slow))
        assert door.stderr is not None
        self.assertRegex(door.stderr.readline(), r"^Building, [1-9] s: a line of the log$")
        slow.unlink()
        door.communicate(timeout=HANG_S)


class Words(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_an_unknown_word_is_answered_before_anything_is_done(self) -> None:
        for word, nearest in (("tset", " Did you mean test?"), ("chek", " Did you mean check?"), ("hlep", " Did you mean help?"),
                              ("xyzzy", ""), ("a b", "")):
            run = self.run_door(word, ends=2)
            self.assertTrue(run.stderr.startswith(f"./ladder has no word '{word}'.{nearest}\n  There are: test docs "), run.stderr)
        for stage in ("01_wood", "1", "wood", "WOOD/"):
            run = self.run_door(stage, ends=2)
            self.assertIn("./ladder check 01 ", run.stderr)
        for stage in ("p02_clay", "p2", "p02", "clay", "side/p02_clay/"):
            self.assertIn("./ladder check p02 ", self.run_door(stage).stderr)
        self.assertIn("has no word '09_copy'", self.run_door("09_copy").stderr)
        for verb in ("check", "bench", "explain"):
            run = self.run_door(verb, "zz")
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertTrue(run.stderr.startswith("There is no stage 'zz'.\n"), run.stderr)
        self.assertEqual(self.calls(), "")

    def test_learn_and_grade_are_scripts_that_ask_the_built_program(self) -> None:
        self.install_tools()
        for word in ("learn", "grade"):
            self.run_door(word, "hint", ends=0)
            calls = self.calls().splitlines()
            self.assertEqual(calls[-1], f"python3 -B -m tools.course.{word}")
            self.assertTrue(any(call.startswith("cmake --build") for call in calls[:-1]))

    def test_the_verbs_are_the_program_s(self) -> None:
        listed = re.search(r"^  (.*) \| -\*\)$", (ROOT / "ladder").read_text(), re.M)
        program = re.findall(r'(?:add_verb|add_bare)\(Verb::\w+, "(\w+)"', (ROOT / "harness" / "verbs" / "options.cpp").read_text())
        assert listed and program
        self.assertEqual(listed[1].split(" | "), program)

    def test_a_compiler_that_is_not_there(self) -> None:
        run = self.run_door(CXX="nope -m64", ends=2)
        self.assertIn("CXX is 'nope -m64', and there is no such program.", run.stderr)
        self.assertIn("Unset CXX", run.stderr)
        self.assertEqual(self.calls(), "")

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
        run = self.run_door("bench", "01", "--burst")
        self.assertEqual(run.stderr, "")
        self.assertIn("--target rung_all\nladder bench 01 --burst\n", self.calls())

    def test_each_word_builds_what_it_needs_and_no_more(self) -> None:
        needs = {"rung_none": ("bench --help", "check 01 -h", "try --help", "learn --help"),
                 "rung_01_wood": ("card wood", "check 1", "bench 01_wood", "check 01 --n 384 --quick", "check 01 --batch=2 --heads 1"),
                 "rung_p02_clay": ("check clay --n 1 --on cpu",),
                 "rung_all": ("", "--all", "list", "list 01", "describe --json -", "explain 01", "explain 01 p02", "bench", "bench 01 p02", "bench 01 --causal"),
                 "ladder": ("check", "check --quick", "check 01 p02", "check 01 --quick p02", "check 01 --causal", "check 01 --d 64", "check 01 --record-counts",
                            "--causal", "--n 64 check", "compare 01 p02", "peer x", "try a.cuh", "learn list", "grade x")}
        self.run_door()
        for target, commands in needs.items():
            for command in commands:
                (self.repository / "build" / "ladder").unlink(missing_ok=True)
                self.log.write_text("")
                self.run_door(*command.split())
                with self.subTest(command):
                    self.assertEqual(re.findall(r"--target (\w+)", self.calls()), [target])
        # Where the program of all words is there, that is the one.
        for commands in needs.values():
            self.log.write_text("")
            self.run_door(*commands[0].split())
            self.assertEqual(re.findall(r"--target (\w+)", self.calls()), ["ladder"])

    def test_the_dev_container_is_made_by_this_script(self) -> None:
        container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
        self.assertRegex(container["image"], ":bookworm$")  # Debian 12
        run = subprocess.run(["bash", "-c", container["onCreateCommand"]], cwd=self.repository, env=self.variables(), capture_output=True)
        self.assertEqual(run.returncode, 0)
        self.assertTrue(self.calls().endswith("--target ladder\n"), self.calls())

    def complete(self, shell: str, *words: str) -> list[str]:
        calls = "emulate sh -o nounset; " if shell == "zsh" else ""  # as bashcompinit does
        script = (f"source {ROOT}/harness/completion.sh; {calls}COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; "
                  '_flash_ladder; printf "%s\\n" "${COMPREPLY[@]}"')
        run = subprocess.run([shell, "-c", script], capture_output=True, text=True, env={**os.environ, "LADDER_BUILD": str(self.home / "made")})
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout.split()

    def test_completion(self) -> None:
        door = str(self.repository / "ladder")
        (self.home / "made").mkdir()
        write_program(self.home / "made" / "ladder", '#!/bin/sh\n[ "$1 $2" = "check --help" ] && echo "  --quick Excludes: --thorough"\n')
        self.assertEqual(self.complete("bash", door, "c"), ["card", "check", "compare"])
        self.assertEqual(self.complete("bash", door, "check", ""), ["01_wood", "p02_clay"])
        self.assertEqual(self.complete("bash", door, "check", "01_wood", "p"), ["p02_clay"])
        self.assertEqual(self.complete("bash", door, "check", "--"), ["--quick", "--thorough"])
        (self.home / "made" / "rungs").mkdir()
        (self.home / "made" / "ladder").rename(self.home / "made" / "rungs" / "rung_all")
        self.assertEqual(self.complete("bash", door, "check", "--"), ["--quick", "--thorough"])
        self.assertEqual(self.complete("bash", door, "try", "mi"), [])
        learn = set(self.complete("bash", door, "learn", ""))
        said = re.search(r"^WORDS = \((.*)\)$", (ROOT / "tools" / "course" / "learn.py").read_text(), re.M)
        assert said
        self.assertEqual(learn, set(re.findall(r"\w+", said[1])))
        if shutil.which("zsh"):
            self.assertEqual(self.complete("zsh", door, "check", ""), ["01_wood", "p02_clay"])

    def test_help_of_each_word_has_two_examples(self) -> None:
        for word in ("card", "test", "docs", "build"):
            run = self.run_door(word, "--help")
            self.assertEqual(len(re.findall(rf"^  \./ladder {word}\b", run.stdout, re.M)), 2, run.stdout)
        for word in ("learn", "grade"):
            text = (ROOT / "tools" / "course" / f"{word}.py").read_text()
            self.assertGreaterEqual(len(re.findall(rf"^    \./ladder {word}\b", text.split('"""')[1], re.M)), 2)
        program = (ROOT / "harness" / "verbs" / "options.cpp").read_text()
        for verb in re.findall(r'add_(?:verb|bare)\(Verb::\w+, "(\w+)"', program):
            self.assertEqual(program.count(f'"  ./ladder {verb}'), 2, verb)

    def test_help_needs_no_build(self) -> None:
        for words, said in ((["--help"], "./ladder test"), (["test", "-h"], "./ladder test"), (["docs", "--help"], "./ladder docs")):
            run = self.run_door(*words, ends=0)
            self.assertIn(said, run.stdout)
        self.assertEqual(self.calls(), "")

    def test_docs_are_built_by_what_the_program_says(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("needs root")
        write_program(self.bin / "apt-get", APT)
        run = self.run_door("docs", ends=0)
        self.assertRegex(self.calls(), r"cmake .* --target rung_all\n(python3 -c .*\n)*python3 -m sphinx -q\n$")
        self.assertIn("build/site/index.html", run.stderr)
        self.assertNotIn("chromium", self.calls())
        self.assertEqual(self.run_door("docs", "--tests").returncode, 0)
        self.assertRegex(self.calls(), r"apt-get .*install.* chromium chromium-driver")

    def test_docs_refuse_what_they_do_not_know(self) -> None:
        run = self.run_door("docs", "--test", ends=2)
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
        self.run_door("test", ends=0)
        self.assertIn("--target all\nctest --test-dir", self.calls())

    def test_hands_arguments_to_ctest(self) -> None:
        self.run_door("test", "-L", "03")
        self.assertRegex(self.calls(), r"ctest .*--no-tests=error.* -L 03\n")
        self.assertNotIn("--target", self.calls())  # ctest builds what these need

    def test_fails_as_ctest_does(self) -> None:
        self.assertEqual(self.run_door("test", STUB_CTEST="8").returncode, 8)


class Installing(Door):
    def test_where_the_ladder_was_built_nothing_is_missing(self) -> None:
        functions = re.search(r"^find_python\(\).*?(?=^install_missing\(\))", (ROOT / "ladder").read_text(), re.M | re.S)
        assert functions
        run = subprocess.run(["bash", "-c", f"{functions[0]}\nmissing_packages ladder"], capture_output=True, text=True)
        self.assertEqual(run.stdout, "")

    def test_without_apt_lists_what_to_install(self) -> None:
        run = self.run_door(ends=77)
        self.assertIn("libcli11-dev", run.stderr)
        self.assertIn("no apt-get", run.stderr)


@unittest.skipUnless(os.geteuid() == 0, "needs root, also to become somebody else")
class InstallingByApt(Door):
    def setUp(self) -> None:
        super().setUp()
        write_program(self.bin / "apt-get", APT)
        for path in (self.home, *self.home.rglob("*")):
            path.chmod(0o777)  # nobody shall get in, too

    def test_asks_for_what_is_missing_and_says_what(self) -> None:
        run = self.run_door("test", ends=0)
        for package in ("g++", "cmake", "ninja-build", "libfmt-dev", "catch2"):
            self.assertRegex(self.calls(), rf"apt-get .*install.* {package}".replace("+", r"\+"))
            self.assertIn(package, run.stderr)

    def test_only_the_missing_header_is_installed(self) -> None:
        self.install_tools()
        self.run_door(STUB_HEADERS_MISSING="libfmt-dev")
        self.assertRegex(self.calls(), r"apt-get .*no-install-recommends libfmt-dev\n")

    def test_says_why_it_failed(self) -> None:
        run = self.run_door(STUB_APT="broken", ends=77)
        self.assertIn("Unable to locate package stub", run.stderr)
        self.assertIn("apt-get could not install: ", run.stderr)
        self.assertRegex(self.calls(), "apt-get .*update\n")

    def test_without_root_and_sudo_prints_the_command(self) -> None:
        run = self.run_door(user="nobody", ends=77)
        self.assertRegex(run.stderr, r"As root, run:\n  apt-get update && apt-get install --no-install-recommends .*cmake")
        self.assertRegex(run.stderr, r"install --no-install-recommends .*g\+\+")
        self.assertNotIn("Installing what", run.stderr)

    def test_names_all_packages_at_once(self) -> None:
        run = self.run_door("docs", "--tests", user="nobody", ends=77)
        self.assertRegex(run.stderr, r"install --no-install-recommends .*chromium.* cmake ")

    def test_sudo_is_asked_once(self) -> None:
        write_program(self.bin / "sudo", SUDO)
        run = self.run_door(user="nobody", STUB_SUDO="1", ends=77)
        self.assertEqual(self.calls(), "sudo -v\n")
        self.assertIn("sudo does not give it here. As root, run:\n  apt-get update && apt-get install", run.stderr)
        self.run_door(user="nobody", ends=0)
        self.assertRegex(self.calls(), r"sudo -v\nsudo env .*apt-get .*update\n.*\nsudo env .*apt-get .* install ")


class Configuring(unittest.TestCase):
    """The CMake project itself, with a stub in place of nvcc."""

    def test_an_nvcc_that_cannot_compile_is_not_called_absent(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            nvcc = Path(folder, "nvcc")
            write_program(nvcc, "#!/bin/sh\necho 'In file included from x.h:1,'\necho 'y.h:143: error: unsupported GNU version'\n"
                                "echo 'z: error: and more'\nexit 1\n")
            run = subprocess.run(["cmake", "-S", ROOT, "-B", Path(folder, "a build"), "-DLADDER_CUDA=AUTO", "-Dgpu_visible=ON"], text=True,
                                 capture_output=True, timeout=HANG_S, env={**os.environ, "CUDACXX": str(nvcc)})
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f"-- flash-ladder: GPU half OFF ({nvcc} cannot compile: y.h:143: error: unsupported GNU version)\n",
                          run.stdout)
            for way_out in ("CUDAHOSTCXX=", "LADDER_CMAKE=-DLADDER_CUDA=OFF ./ladder"):
                self.assertIn(way_out, run.stdout)


    def test_a_path_with_a_space_weakens_no_check(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder, "a clone")
            clone.symlink_to(ROOT)
            run = subprocess.run(["cmake", "-S", clone, "-B", Path(folder, "a build"), "-DLADDER_CUDA=OFF", "-DLADDER_RUNGS=02_"], text=True,
                                 capture_output=True, timeout=HANG_S)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(f"HOME_DIRECTORY:INTERNAL={clone}", Path(folder, "a build", "CMakeCache.txt").read_text())
            self.assertNotIn("Checks are weaker", run.stdout)


# `python3 -m venv DIRECTORY` puts a pip there, which brings a toolkit, or what else STUB_PIP says.
VENV = """#!/bin/bash
echo "python3 $*" >> "$STUB_LOG"
[[ $1 == -m ]] || exit "${STUB_ENSUREPIP:-0}"
mkdir -p "$3/bin"
cp "$STUB_HOME/pip" "$3/bin/pip"
"""
PIP = """#!/bin/bash
echo "pip $*" >> "$STUB_LOG"
[[ ${STUB_PIP:-ok} == ok ]] || { echo 'ERROR: No matching distribution found' >&2; exit 1; }
toolkit=${0%/bin/pip}/lib/python3.11/site-packages/nvidia/cu13
mkdir -p "$toolkit/bin" "$toolkit/lib"
cp "$STUB_HOME/nvcc" "$toolkit/bin/nvcc"
"""


class Nvcc(unittest.TestCase):
    """.ci/nvcc, where an nvcc is installed, where it is too old, and where there is none."""

    def setUp(self) -> None:
        self.home = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.home)
        self.bin, self.log, self.directory = self.home / "bin", self.home / "log", self.home / "build" / "nvcc"
        self.bin.mkdir()
        for tool in "bash cp head ln mkdir realpath rm sed sort".split():
            (self.bin / tool).symlink_to(shutil.which(tool))
        write_program(self.bin / "python3", VENV)
        write_program(self.home / "pip", PIP)
        self.write_nvcc(self.home / "nvcc", "13.0")
        # An nvcc that this system has at its usual place is no matter of these tests.
        script = (ROOT / ".ci" / "nvcc").read_text(encoding="utf-8")
        self.assertIn(" /usr/local/cuda/bin/nvcc ", script)
        write_program(self.home / "script", script.replace("/usr/local/cuda/bin/nvcc", f"{self.home}/cuda/bin/nvcc"))

    def write_nvcc(self, path: Path, release: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_program(path, f'#!/bin/bash\necho "Cuda compilation tools, release {release}, V{release}.88"\n')

    def run_script(self, ends: int | None = None, **environment: str) -> subprocess.CompletedProcess:
        self.log.write_text("")
        variables = {"PATH": str(self.bin), "STUB_LOG": str(self.log), "STUB_HOME": str(self.home), **environment}
        return ended(subprocess.run([self.home / "script", self.directory], env=variables, text=True, capture_output=True,
                                    timeout=HANG_S), ends)

    def answer(self, **environment: str) -> str:
        return self.run_script(**environment, ends=0).stdout

    def test_one_that_is_installed_is_taken_and_nothing_fetched(self) -> None:
        self.write_nvcc(self.home / "cuda/bin/nvcc", "12.4")
        self.assertEqual(self.answer(), f"{self.home}/cuda/bin/nvcc\n")
        self.write_nvcc(self.bin / "nvcc", "12.10")  # is not older than 12.4
        self.assertEqual(self.answer(), f"{self.bin}/nvcc\n")
        self.write_nvcc(self.home / "own/nvcc", "13.1")
        self.assertEqual(self.answer(CUDACXX=f"{self.home}/own/nvcc"), f"{self.home}/own/nvcc\n")
        self.assertEqual(self.log.read_text(), "")

    def test_without_one_it_is_fetched_once(self) -> None:
        fetched = f"{self.directory}/lib/python3.11/site-packages/nvidia/cu13/bin/nvcc\n"
        for release in (None, "11.8", "12.3"):
            with self.subTest(installed=release):
                shutil.rmtree(self.directory, ignore_errors=True)
                if release:
                    self.write_nvcc(self.bin / "nvcc", release)
                self.assertEqual(self.answer(), fetched)
                self.assertRegex(self.log.read_text(), r"pip install .*nvidia-cuda-nvcc==13\.0\.\d+ ")
                self.assertTrue((self.directory / "lib/python3.11/site-packages/nvidia/cu13/lib64/libcudart.so").is_symlink())
                self.assertEqual(self.answer(), fetched)
                self.assertEqual(self.log.read_text(), "")

    def test_where_none_is_to_be_had_it_fails_with_a_sentence(self) -> None:
        self.write_nvcc(self.home / "nvcc", "11.8")
        for said, environment in (("pip could not fetch it", {"STUB_PIP": "fails"}), ("does not run", {}),
                                  ("python3-venv could not be installed", {"STUB_ENSUREPIP": "1"})):
            with self.subTest(said):
                run = self.run_script(**environment)
                self.assertEqual((run.returncode, run.stdout), (1, ""))
                self.assertIn(said, run.stderr)
                self.assertRegex(run.stderr, r"There is no nvcc: (.*\n)*  Or install a CUDA toolkit")


class Make(Door):
    def setUp(self) -> None:
        super().setUp()
        self.install_tools()

    def test_a_stage_is_checked_timed_and_explained(self) -> None:
        self.run_door("01_wood", program="make", STUB_BENCH="77", ends=0)
        self.assertIn("ladder check 01_wood\n", self.calls())
        self.assertIn("ladder bench 01_wood\n", self.calls())
        self.assertIn("ladder explain 01_wood\n", self.calls())

    def test_a_wrong_stage_fails(self) -> None:
        self.assertNotEqual(self.run_door("01_wood", program="make", STUB_CHECK="1").returncode, 0)
        self.assertNotEqual(self.run_door("01_wood", program="make", STUB_BENCH="1").returncode, 0)
        self.assertNotEqual(self.run_door("09_nothing", program="make").returncode, 0)

    def test_a_stage_goes_by_the_names_that_the_program_takes(self) -> None:
        for directory, names in (("01_wood", ("1", "01", "wood", "01_wood")),
                                 ("side/p02_clay", ("p2", "p02", "clay", "p02_clay", "side/p02_clay"))):
            for name in names:
                self.log.write_text("")
                self.run_door(name, program="make", ends=0)
                self.assertIn(f"ladder check {Path(directory).name}\n", self.calls())
        # A rung may be called as a target is; the target stays.
        (self.repository / "43_test").mkdir()
        (self.repository / "43_test" / "stage.cu").touch()
        self.log.write_text("")
        self.run_door("test", program="make")
        self.assertIn("ctest", self.calls())

    def test_the_build_is_where_the_user_says(self) -> None:
        for arguments, variables in (((), {"LADDER_BUILD": "elsewhere"}), (("BUILD=elsewhere",), {})):
            self.log.write_text("")
            self.assertEqual(self.run_door("01_wood", *arguments, program="make", **variables).returncode, 0)
            self.assertIn(f"-B {self.repository}/elsewhere", self.calls())
            shutil.rmtree(self.repository / "elsewhere")

    def test_a_new_rung_becomes_a_target_by_existing(self) -> None:
        (self.repository / "42_new").mkdir()
        (self.repository / "42_new" / "stage.cu").touch()
        self.assertIn("01_wood 42_new p02_clay'", self.run_door("help", program="make").stdout.replace("\n", "'"))


if __name__ == "__main__":
    unittest.main()
