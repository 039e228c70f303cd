"""The mutants of one rung, compiled into one program: the ladder with this rung alone, judged by `ladder check`."""
from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tools.mutants import schemata
from tools.mutants.operators import count_occurrences, Mutant, mutants_of, Unit

BATCH = 10  # programs of mutants that are compiled apart, per file


class BuildError(Exception):
    pass


def is_kernel(source: str) -> bool:
    """What a rung tells the harness (its predictions, its registration) is no part of the kernel."""
    return "ladder::" not in source


def run_tool(command: str | list[str], directory: Path) -> subprocess.CompletedProcess:
    return subprocess.run(command, shell=isinstance(command, str), cwd=directory, capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL)


class Build:
    """The commands with which a build directory compiles and links; nothing of the harness is compiled again."""

    def __init__(self, directory: Path):
        self.directory = directory
        run_tool(["ninja", "build.ninja"], directory)  # a change of CMakeLists.txt changes the commands
        result = run_tool(["ninja", "-t", "compdb"], directory)
        if result.returncode != 0:
            raise BuildError(f"{directory} has no build.ninja: mutants are compiled with the commands of a Ninja build.\n"
                             f"  Here:  cmake -S . -B {directory} -G Ninja")
        self.entries = json.loads(result.stdout)

    def compile_commands(self, source: Path, target: str = "") -> list[tuple[list[str], str]]:
        """Arguments without those that name files, and the object's name, one for each time it is compiled."""
        found = []
        for entry in self.entries:
            if Path(entry["directory"], entry["file"]).resolve() != source.resolve() or target not in entry.get("output", ""):
                continue
            words, kept, skip = shlex.split(entry["command"]), [], 0
            for i, word in enumerate(words):
                if skip:
                    skip -= 1
                elif word in ("-o", "-MT", "-MF", "-c"):
                    skip = 1
                elif word not in ("-MD", "-Werror"):
                    kept.append(word)
            found.append((kept + ["-w"], entry["output"]))
        return found

    def commands_including(self, stage: Path) -> list[tuple[list[str], str]]:
        """Of the generated files that hand this stage to the C++ compiler."""
        found = []
        for file in {Path(entry["directory"], entry["file"]) for entry in self.entries}:
            if file.suffix == ".cpp" and file.is_relative_to(self.directory) and file.is_file() and f'"{stage}"' in file.read_text(errors="replace"):
                found += self.compile_commands(file)
        return found

    def link_command(self, target: str) -> str:
        result = run_tool(["ninja", "-t", "commands", target], self.directory)
        lines = result.stdout.splitlines()
        if result.returncode != 0 or not lines:
            raise BuildError(f"ninja knows no target {target} in {self.directory}: {result.stderr.strip()}")
        return lines[-1]

    def link_inputs(self, target: str) -> list[str]:
        """Objects and libraries that the target is linked from, but for the stages, which are generated files."""
        generated = {entry.get("output") for entry in self.entries
                     if entry["file"].endswith(".cpp") and Path(entry["directory"], entry["file"]).is_relative_to(self.directory)}
        return [word for word in self.link_command(target).split()
                if word.endswith((".o", ".a")) and not word.startswith("/") and word not in generated]

    def make(self, *targets: str) -> None:
        result = subprocess.run(["ninja", "-C", str(self.directory), *targets], capture_output=True, text=True)
        if result.returncode != 0:
            raise BuildError(f"{' '.join(targets)} does not build:\n{result.stdout[-2000:]}")


ERROR = re.compile(r"^([^\s:][^:]*):(\d+):\d+: (.*)$")


def blamed(stderr: str, files: dict[str, dict[int, int]]) -> tuple[set[int], str]:
    """The mutants that the compiler's errors are about, and the first error that is about none of them."""
    guilty: set[int] = set()
    context: list[int] = []
    unexplained = ""
    for line in stderr.splitlines():
        match = ERROR.match(line)
        if match is None:
            continue
        mutant = files.get(match.group(1), {}).get(int(match.group(2)))
        if "error:" in match.group(3):
            # Instantiations that led there are listed before an error, the innermost first.
            culprits = [mutant] if mutant else context[:1]
            guilty.update(culprits)
            if not culprits and not unexplained:
                unexplained = line
            context = []
        elif mutant and ("required from" in match.group(3) or "in instantiation" in match.group(3)
                         or "in 'constexpr' expansion" in match.group(3) or "required by" in match.group(3)):
            context.append(mutant)
    return guilty, unexplained


FILES = ("kernel.cuh", "stage.cu")


def texts_of_rung(directory: Path) -> dict[str, str]:
    return {path: (directory / path).read_text() for path in FILES if (directory / path).exists()}


def mutants_of_rung(directory: Path) -> list[Mutant]:
    """What stage.cu tells the harness is no part of a kernel."""
    return count_occurrences(mutants_of((directory / FILES[0]).read_text(), FILES[0], is_kernel))


class Rung:
    """One rung's mutants and the program that holds them."""

    def __init__(self, directory: Path, build: Build, work: Path, jobs: int):
        self.directory, self.build, self.jobs = directory, build, jobs
        self.name = directory.name
        self.work = work / self.name
        self.program = self.work / "ladder"
        self.texts = texts_of_rung(directory)
        self.mutants = schemata.number(mutants_of_rung(directory))
        self.not_programs: list[Mutant] = []

    def keep(self, mutants: list[Mutant]) -> None:
        """Only these are compiled."""
        self.mutants = schemata.number(mutants)

    # ---- text -------------------------------------------------------------------------------------------------------
    def _body(self, texts: dict[str, str]) -> tuple[list[str], str]:
        includes, parts = [], []
        for path in FILES:
            if path in texts:
                found, body = schemata.split_includes(texts[path], set(texts))
                includes += found
                parts.append(body)
        return includes, "\n".join(parts)

    def _wrapped(self, name: str, active: str, texts: dict[str, str], mark: int = 0) -> tuple[list[str], str]:
        """A namespace in which a registration counts only if this program is chosen."""
        includes, body = self._body(texts)
        if mark:
            body = "\n".join(f"{line} /*mutant {mark}*/" if not line.rstrip().endswith("\\") else line for line in body.split("\n"))
        # Without a name, as a rung is compiled more than once for one program.
        head = (f"namespace {{ namespace mutants_{name} {{ namespace ladder {{ using namespace ::ladder; struct Registration {{ "
                f"explicit Registration(Rung rung) {{ if ({active}) ::ladder::Registration(std::move(rung)); }} }}; }}\n")
        return includes, head + body + f"\n}} }}  // namespace mutants_{name}\n"

    def _file(self, pieces: list[tuple[list[str], str]]) -> str:
        includes: list[str] = []
        for found, _ in pieces:
            includes += [line for line in found if line not in includes]
        return "\n".join(includes) + "\n" + schemata.PROLOGUE + "".join(body for _, body in pieces)

    def _schema_text(self) -> str:
        texts = {}
        for path, text in self.texts.items():
            texts[path] = schemata.Schema(text, [m for m in self.mutants if m.path == path and m.unit.kind != "apart"]).render()
        apart = [m.number for m in self.mutants if m.unit.kind == "apart"]
        active = " && ".join(f"!MUTANT({n})" for n in apart) or "true"
        return self._file([self._wrapped("schema", active, texts)])

    def _apart_text(self, mutants: list[Mutant]) -> str:
        pieces = []
        for mutant in mutants:
            texts = dict(self.texts)
            texts[mutant.path] = schemata.apart(texts[mutant.path], mutant)
            pieces.append(self._wrapped(str(mutant.number), f"MUTANT({mutant.number})", texts, mutant.number))
        return self._file(pieces)

    # ---- compiling --------------------------------------------------------------------------------------------------
    def _errors(self, path: Path, text: str) -> tuple[set[int], str]:
        path.write_text(text)
        command = self.commands[0][0] + ["-fsyntax-only", str(path)]
        result = run_tool(command, self.build.directory)
        if result.returncode == 0:
            return set(), ""
        guilty, unexplained = blamed(result.stderr, {str(path): schemata.lines_of(text)})
        return guilty, unexplained or ("" if guilty else result.stderr[:2000])

    def refused(self, mutant: Mutant) -> bool:
        """Whether one of the rung's own builds ends with an error. Optimised as they are: only so does GCC see what is read unset."""
        path = self.work / "refused.cpp"
        path.write_text(self._apart_text([mutant]))
        commands = [[word for word in command if word != "-w"] for command, _ in self.commands]
        return any(run_tool(command + ["-c", str(path), "-o", os.devnull], self.build.directory).returncode != 0 for command in commands)

    def prepare(self) -> None:
        self.work.mkdir(parents=True, exist_ok=True)
        self.commands = self.build.commands_including(self.directory / "stage.cu")
        if not self.commands:
            raise BuildError(f"{self.build.directory} does not compile {self.name}; configure it anew: "
                             f"cmake -S . -B {self.build.directory}")

    def compile(self) -> None:
        self.prepare()
        schema = self.work / "schema.cpp"
        for _ in range(20):  # what is not C++ beside its original may be C++ by itself
            guilty, unexplained = self._errors(schema, self._schema_text())
            if not guilty and not unexplained:
                break
            if not guilty:
                raise BuildError(f"{self.name}: the program with all mutants does not compile: {unexplained}")
            for mutant in self.mutants:
                if mutant.number in guilty:
                    mutant.unit = Unit("apart", mutant.unit.start, mutant.unit.end)  # its neighbours keep theirs
            self.mutants = schemata.number(self.mutants)
        apart = [mutant for mutant in self.mutants if mutant.unit.kind == "apart"]
        self.not_programs += [mutant for mutant in apart if mutant.operator == "uninitialised" and self.refused(mutant)]
        apart = [mutant for mutant in apart if mutant not in self.not_programs]
        for _ in range(20):
            guilty, unexplained = self._errors(self.work / "apart.cpp", self._apart_text(apart)) if apart else (set(), "")
            if not guilty and not unexplained:
                break
            if not guilty:
                raise BuildError(f"{self.name}: mutants do not compile: {unexplained}")
            self.not_programs += [mutant for mutant in apart if mutant.number in guilty]
            apart = [mutant for mutant in apart if mutant.number not in guilty]
        self.mutants = [mutant for mutant in self.mutants if mutant not in self.not_programs]
        sources = [schema]
        for i in range(0, len(apart), BATCH):
            sources.append(self.work / f"apart{i // BATCH}.cpp")
            sources[-1].write_text(self._apart_text(apart[i:i + BATCH]))
        tasks, replaced = [], {}
        for k, (command, output) in enumerate(self.commands):
            objects = []
            for source in sources:
                objects.append(source.with_suffix(f".{k}.o"))
                tasks.append(command + ["-c", str(source), "-o", str(objects[-1])])
            replaced[output] = " ".join(shlex.quote(str(o)) for o in objects)
        with ThreadPoolExecutor(self.jobs) as pool:
            for task, result in zip(tasks, pool.map(lambda task: run_tool(task, self.build.directory), tasks)):
                if result.returncode != 0:
                    raise BuildError(f"{self.name}: {shlex.join(task)}\n{result.stderr[:2000]}")
        self._link(replaced)

    def _link(self, replaced: dict[str, str]) -> None:
        """As the ladder is linked, but of all stages with this one alone, and with its mutants."""
        words, command = self.build.link_command("ladder").split(" "), []
        folders = {output.partition(".dir/")[0] + ".dir" for output in replaced}
        for i, word in enumerate(words):
            if word in replaced:
                command.append(replaced[word])
            elif word.endswith(".o") and any(word.startswith(folder + "/") for folder in folders):
                continue
            elif word == "ladder" and words[i - 1] == "-o":
                command.append(shlex.quote(str(self.program)))
            else:
                command.append(word)
        result = run_tool(" ".join(command), self.build.directory)
        if result.returncode != 0:
            raise BuildError(f"{self.name}: the program does not link:\n{result.stderr[:2000]}")
