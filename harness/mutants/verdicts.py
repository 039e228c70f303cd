"""Mutants of the code that gives the verdicts, judged by the harness's own tests: a test that misses one is a missing test."""
from __future__ import annotations

import shlex
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import judge
import schemata
from operators import Mutant, Unit, count_occurrences, mutants_of
from program import Build, BuildError, blamed, run_tool

# What decides whether a kernel is right, or a time believed: files of harness/, and of a room all that is compiled.
PLACES = ["verify", "problem/reference.cpp", "problem/tolerance.cpp", "devices/guarded.hpp", "devices/tensor_memory.cpp",
          "measure/group.cpp", "measure/rounds.cpp", "measure/statistics.cpp"]
PROGRAMS = ["harness_tests", "wrong_tests"]
# So that a variable which is read unset does not hold by luck what it should: a NaN, the largest integer.
UNSET = ["-ftrivial-auto-var-init=pattern", f"-B{Path(__file__).resolve().parents[2] / 'common/emulator/unset_is_nan'}"]
REACHED = "LADDER_MUTANTS_REACHED"  # a file for the numbers of the changed parts that a test executes

# Behind the common prologue: which parts a run has come by.
RECORD = f"""#ifndef LADDER_MUTANTS_RECORD
#define LADDER_MUTANTS_RECORD
#include <cstdio>
#include <vector>
struct MutantsReached {{
  const char* const path = std::getenv("{REACHED}");
  std::vector<bool> parts = std::vector<bool>(path ? 1 << 16 : 0);
  bool among(int number, int first, unsigned count) {{
    if (path) parts[first] = true;
    return static_cast<unsigned>(number - first) < count;
  }}
  ~MutantsReached() {{
    std::FILE* const file = path ? std::fopen(path, "w") : nullptr;
    if (!file) return;
    for (size_t i = 0; i < parts.size(); ++i)
      if (parts[i]) std::fprintf(file, "%zu\\n", i);
    std::fclose(file);
  }}
}};
inline MutantsReached mutants_reached;
#undef MUTANT_AMONG
#define MUTANT_AMONG(first, count) (mutants_reached.among(mutant_number, first, count))
#endif
"""


@dataclass
class TestCase:
    program: Path
    name: str
    seconds: float
    reached: set[int]

    def command(self, program: Path | None = None) -> list[str]:
        # A name may begin as an option does.
        escaped = ("*" if self.name.startswith("-") else "") + "".join(f"\\{c}" if c in "\\,[]*~\"" else c for c in self.name.lstrip("-"))
        return [str(program or self.program), escaped, "--abort"]


def verdict_files(harness: Path) -> list[Path]:
    files = []
    for place in PLACES:
        path = harness / place
        found = sorted(path.glob("*.cpp")) if path.is_dir() else [path]
        if not found or not all(file.is_file() for file in found):
            raise BuildError(f"There is no harness/{place}. The list of verdict code is in {Path(__file__).name}.")
        files += found
    return files


def test_names(program: Path) -> list[str]:
    for options in (["--list-test-names-only"], ["--list-tests", "--verbosity", "quiet"]):  # Catch2 2 and 3
        result = run_tool([str(program), *options], program.parent)
        names = [line.strip() for line in result.stdout.splitlines() if line.strip()]
        if names and "rror" not in result.stderr:
            return names
    raise BuildError(f"{program} does not list its tests.")


class VerdictCode:
    """Of all the code, or of the `places` alone: files or folders, such as harness/measure."""
    def __init__(self, root: Path, build: Build, work: Path, jobs: int, places: list[str]):
        self.root, self.build, self.jobs = root, build, jobs
        self.work = work / "harness"
        self.texts = {str(file.relative_to(root)): file.read_text() for file in verdict_files(root / "harness")}
        mutants = count_occurrences([mutant for path, text in self.texts.items() for mutant in mutants_of(text, path)])
        self.known = {mutant.key for mutant in mutants}
        if places:
            self.texts = {path: text for path, text in self.texts.items()
                          if any(Path(path).is_relative_to(place) for place in places)}
        self.mutants = schemata.number([mutant for mutant in mutants if mutant.path in self.texts])
        self.not_programs: list[Mutant] = []
        self.tests: list[TestCase] = []

    # ---- text and commands ------------------------------------------------------------------------------------------
    def _schema(self, path: str) -> str:
        return (schemata.PROLOGUE + RECORD
                + schemata.Schema(self.texts[path], [m for m in self.mutants if m.path == path and m.unit.kind != "apart"]).render())

    def _users(self, path: str) -> list[Path]:
        """The files to compile again when this one changes."""
        if path.endswith(".cpp"):
            return [self.root / path]
        line = f'#include "{path}"'
        return [file for file in sorted((self.root / "harness").rglob("*.cpp")) if line in file.read_text()]

    def _commands(self, file: Path) -> list[tuple[list[str], str]]:
        return [(command, output) for command, output in self.build.compile_commands(file)
                if "harness.dir" in output or any(f"{program}.dir" in output for program in PROGRAMS)]

    def _tasks(self, replaced: dict[str, str], folder: Path) -> tuple[list[list[str]], dict[str, Path]]:
        """Compiler calls for these files' new texts, and the objects that come out, by the name of those they replace."""
        include = folder / "include"
        users: list[Path] = []
        for path, text in replaced.items():
            target = include / path if path.endswith(".hpp") else folder / Path(path).name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            users += [user for user in self._users(path) if user not in users]
        tasks, objects = [], {}
        for user in users:
            path = str(user.relative_to(self.root))
            source = folder / user.name if path in replaced else user
            for k, (command, output) in enumerate(self._commands(user)):
                objects[output] = folder / f"{user.stem}.{k}.o"
                tasks.append([command[0], f"-I{include}", *UNSET, *command[1:], "-c", str(source), "-o", str(objects[output])])
        return tasks, objects

    def _link(self, objects: dict[str, Path], folder: Path) -> dict[str, Path]:
        """The test programs with these objects; those of the library come before it, so that it is not asked for them."""
        programs = {}
        for program in PROGRAMS:
            words, command = self.build.link_command(program).split(" "), []
            ours = [str(path) for output, path in objects.items() if "harness.dir" in output]
            for i, word in enumerate(words):
                if word in objects:
                    command.append(shlex.quote(str(objects[word])))
                elif word.endswith(program) and words[i - 1] == "-o":
                    programs[program] = folder / program
                    command += [shlex.quote(str(programs[program])), *map(shlex.quote, ours)]
                else:
                    command.append(word)
            result = run_tool(" ".join(command), self.build.directory)
            if result.returncode != 0:
                raise BuildError(f"{program} with mutants does not link:\n{result.stderr[:2000]}")
        return programs

    # ---- compiling --------------------------------------------------------------------------------------------------
    def _errors(self, path: str, text: str) -> tuple[set[int], str]:
        folder = self.work / "syntax" / Path(path).stem
        tasks, _ = self._tasks({path: text}, folder)
        source = folder / ("include/" + path if path.endswith(".hpp") else Path(path).name)
        guilty: set[int] = set()
        for task in tasks[:1]:
            result = run_tool(task[:-2] + ["-fsyntax-only"], self.build.directory)
            if result.returncode != 0:
                found, unexplained = blamed(result.stderr, {str(source): schemata.lines_of(text)})
                if not found:
                    raise BuildError(f"{path} with its mutants does not compile: {unexplained or result.stderr[:2000]}")
                guilty |= found
        return guilty, ""

    def compile(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        for _ in range(10):
            texts = {path: self._schema(path) for path in self.texts}
            with ThreadPoolExecutor(self.jobs) as pool:
                found = list(pool.map(lambda item: self._errors(*item)[0], texts.items()))
            guilty = set().union(*found)
            if not guilty:
                break
            for mutant in self.mutants:
                if mutant.number in guilty:
                    mutant.unit = Unit("apart", mutant.unit.start, mutant.unit.end)
            self.mutants = schemata.number(self.mutants)
        tasks, objects = self._tasks(texts, self.work)
        self._compile(tasks)
        self.programs = self._link(objects, self.work)
        self._find_tests()

    def _compile(self, tasks: list[list[str]]) -> None:
        with ThreadPoolExecutor(self.jobs) as pool:
            for task, result in zip(tasks, pool.map(lambda task: run_tool(task, self.build.directory), tasks)):
                if result.returncode != 0:
                    raise BuildError(f"{shlex.join(task)}\n{result.stderr[:2000]}")

    def _find_tests(self) -> None:
        """Every test case by itself, once: how long it takes, and which changed parts it executes."""
        def once(item: tuple[int, tuple[Path, str]]) -> TestCase:
            i, (program, name) = item
            case = TestCase(program, name, 0, set())
            record = self.work / f"reached{i}"
            ended = judge.run(case.command(), 0, judge.Limits(), self.root, {REACHED: str(record)})
            if ended.code != 0:
                raise judge.Refused(f"{shlex.join(case.command())} fails without any mutant.")
            case.seconds = ended.seconds
            case.reached = {int(line) for line in record.read_text().split()} if record.exists() else set()
            return case

        listed = [(program, name) for program in self.programs.values() for name in test_names(program)]
        with ThreadPoolExecutor(self.jobs) as pool:
            self.tests = sorted(pool.map(once, enumerate(listed)), key=lambda case: case.seconds)
        self.first_of_unit = {}
        for mutant in self.mutants:
            key = mutant.path, mutant.unit.start, mutant.unit.end, mutant.unit.kind
            self.first_of_unit.setdefault(key, mutant.number)

    # ---- judging ----------------------------------------------------------------------------------------------------
    def judge(self, mutant: Mutant) -> judge.Outcome:
        if mutant.unit.kind == "apart":
            return self._judge_apart(mutant)
        part = self.first_of_unit[mutant.path, mutant.unit.start, mutant.unit.end, mutant.unit.kind]
        cases = [case for case in self.tests if part in case.reached]
        if mutant.unit.kind == "initialiser":  # is executed without a look at the number
            cases = self.tests
        return self._run(cases, mutant.number, self.programs)

    def _run(self, cases: list[TestCase], number: int, programs: dict[str, Path]) -> judge.Outcome:
        seconds = 0.0
        for case in cases:
            limits = judge.Limits.from_original(case.seconds)
            ended = judge.run(case.command(programs[case.program.name]), number, limits, self.root)
            seconds += ended.seconds
            if ended.code is None:
                return judge.Outcome(judge.TIMEOUT, case.name, seconds)
            if ended.code < 0:
                return judge.Outcome(judge.CRASH, f"{judge.how_it_ended(ended.code)}: {case.name}", seconds)
            if ended.code != 0:
                return judge.Outcome(judge.ANSWERS, case.name, seconds)
        return judge.Outcome(judge.SURVIVED, f"{len(cases)} tests", seconds)

    def _judge_apart(self, mutant: Mutant) -> judge.Outcome:
        folder = self.work / str(mutant.number)
        text = schemata.apart(self.texts[mutant.path], mutant)
        tasks, objects = self._tasks({mutant.path: text}, folder)
        for task in tasks:
            if run_tool(task, self.build.directory).returncode != 0:
                shutil.rmtree(folder)
                self.not_programs.append(mutant)
                return judge.Outcome(judge.NOT_A_PROGRAM, "", 0)
        outcome = self._run(self.tests, 0, self._link(objects, folder))
        shutil.rmtree(folder)
        return outcome
