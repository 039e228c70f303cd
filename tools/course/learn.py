"""`./ladder learn`: the course. What a student writes lies in work/, which git ignores; nothing else of the repository is changed.

    ./ladder learn                 goes on where you are: the task, the file to edit, then a check each time that it is saved
    ./ladder learn list            all exercises, and how far you are
    ./ladder learn start NAME      begins one, or goes back to it; a number is enough
    ./ladder learn check           checks the file once
    ./ladder learn hint            the next of three hints
    ./ladder learn reset           begins the file anew; the old one stays beside it
    ./ladder learn board           the open exercises: your best kernels among the rungs, by what their counts cost
    ./ladder learn time            a kernel of your own beside the rung's, in TFLOPS, where there are a GPU and nvcc
    ./ladder learn time FILE --like 03    any right kernel, exercise or not, beside the rung that it stands for
    ./ladder learn solution        the rung's own lines, once you have passed; before that with --give-up, which is recorded
"""
from __future__ import annotations

import argparse
import contextlib
import csv
import datetime
import difflib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

from tools import rungs
from tools.course import exercises, speed
from tools.course.exercises import CourseError, DONE, Exercise, FAILED, Usage, work_folder

WORDS = ("list", "start", "check", "hint", "reset", "solution", "board", "time")
BEST = 5  # of one's own kernels on the board
POLL_S = 0.3


class Progress:
    """Which exercises were begun, passed, and with how much help. A file of its own, so that it survives an update."""

    def __init__(self) -> None:
        self.path = work_folder() / "progress.json"
        self.data: dict = {"seed": "", "current": "", "exercises": {}}
        if self.path.is_file():
            try:
                self.data |= json.loads(self.path.read_text())
            except (OSError, ValueError) as error:
                raise CourseError(f"{shown(self.path)} cannot be read: {error}\n  Without it you begin anew, your files stay:"
                                  f"  mv {shown(self.path)} {shown(self.path)}.old") from None

    def of(self, name: str) -> dict:
        return self.data["exercises"].setdefault(name, {"checks": 0, "hints": 0, "passed": False, "gave_up": False})

    def save(self) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps(self.data, indent=1) + "\n")
            new.replace(self.path)  # whole or not at all
        except OSError as error:
            raise CourseError(f"Your progress cannot be written, {shown(self.path)}: {error.strerror}.\n"
                              "  Another place:  LADDER_WORK=FOLDER ./ladder learn") from None


def shown(path: Path) -> str:
    """As short as it can be typed here."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)


def styled(text: str, code: str) -> str:
    plain = not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain else f"\033[{code}m{text}\033[0m"


class Learner:
    def __init__(self) -> None:
        self.all = exercises.all_exercises()
        self.progress = Progress()

    # ---- which exercise ----------------------------------------------------------------------------------------------
    def named(self, typed: str) -> Exercise:
        if exercise := exercises.called(typed):
            return exercise
        wanted = typed.strip("/").lower()
        of_rung = [each for each in self.all if wanted in (each.rung, *each.rung.split("_"), each.name[:-1].partition("_")[0])]
        of_rung = of_rung or [each for each in self.all if each.name.partition("_")[0][:-1].lstrip("0") == wanted.lstrip("0")]
        if len(of_rung) == 1:
            return of_rung[0]
        if of_rung:
            raise Usage(f"There are several exercises of {typed}:  {'  '.join(each.name for each in of_rung)}\n  For example:  ./ladder learn start {of_rung[0].name}")
        raise exercises.unknown(typed)

    def current(self) -> Exercise | None:
        """The one begun last, or if it is passed, the next that is not; behind the last one comes the first."""
        name = self.progress.data["current"]
        at = next((i for i, each in enumerate(self.all) if each.name == name), 0)
        return next((each for each in self.all[at:] + self.all[:at] if not self.progress.of(each.name)["passed"]), None)

    def begun(self) -> Exercise:
        """For words that are about the exercise at hand: passed or not, it is the one begun last."""
        name = self.progress.data["current"]
        if not name:
            raise Usage("No exercise is begun.\n  The first one:  ./ladder learn")
        for exercise in self.all:
            if exercise.name == name:
                return exercise
        raise Usage(f"{name}, which you began last, is no part of the course any more; what you wrote is in {shown(work_folder() / name)}.\n"
                    "  The next one:  ./ladder learn")

    # ---- its files ---------------------------------------------------------------------------------------------------
    def file(self, exercise: Exercise) -> Path:
        return work_folder() / exercise.name / exercise.file_name

    def given(self, exercise: Exercise) -> Path:
        """What the student began with, to compare with."""
        return self.file(exercise).with_name(".given")

    def begin(self, exercise: Exercise) -> str:
        """Makes the file if it is not there, brings it up to date if the rung has changed; says which of it, if anything."""
        file, given = self.file(exercise), self.given(exercise)
        seed = self.progress.data["seed"]
        skeleton = exercise.skeleton(seed)
        self.progress.data["current"] = exercise.name
        state = self.progress.of(exercise.name)
        another, state["seed"] = state.get("seed", seed) != seed, seed
        said = ""
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if not file.is_file():
                if given.is_file():
                    said = f"{shown(file)} was gone, and begins anew."
                file.write_text(skeleton)
                given.write_text(skeleton)
            elif not given.is_file() or given.read_text() != skeleton:
                said = self._update(exercise, skeleton, another)
        except OSError as error:
            raise CourseError(f"{shown(file)} cannot be written: {error.strerror}.\n"
                              "  Another place:  LADDER_WORK=FOLDER ./ladder learn") from None
        self.progress.save()
        return said

    def _update(self, exercise: Exercise, skeleton: str, another: bool) -> str:
        """The repository has moved on since the exercise was begun, or the student has another name now."""
        file, given = self.file(exercise), self.given(exercise)
        if exercise.free:  # all of it is the student's
            given.write_text(skeleton)
            return ""
        mine, begun = file.read_text(), given.read_text() if given.is_file() else ""
        if mine == begun:  # nothing is written yet
            file.write_text(skeleton)
            given.write_text(skeleton)
            return ""
        kept = None if another else self._carried(exercise, mine, begun, skeleton)
        if kept == mine:
            given.write_text(skeleton)
            return ""
        old = self._set_aside(file)
        file.write_text(kept or skeleton)
        given.write_text(skeleton)
        if kept:
            return f"{exercise.name} has changed since you began. What is yours is carried over; the file as it was: {shown(old)}."
        why = "Your name chooses another one" if another else "This exercise has changed since you began"
        return f"{why}, and it begins anew. Your file as it was: {shown(old)}."

    @staticmethod
    def _carried(exercise: Exercise, mine: str, given: str, skeleton: str) -> str | None:
        """What was written, in what the exercise is now."""
        if exercise.kind == "fill":
            parts = exercises.blanks_of(mine)
            fits = parts is not None and len(parts) == len(exercises.blanks_of(skeleton) or [])
            return exercises.with_blanks(skeleton, parts) if fits and parts else None
        if not given or exercise.kind == "predict" and given.split("\n")[0] != skeleton.split("\n")[0]:  # numbers of another shape
            return None
        with tempfile.TemporaryDirectory() as folder:
            files = [Path(folder) / name for name in ("mine", "given", "now")]
            for path, text in zip(files, (mine, given, skeleton), strict=True):
                path.write_text(text)
            try:
                merged = subprocess.run(["git", "merge-file", "-p", *map(str, files)], capture_output=True, text=True)
            except OSError:
                return None
        return merged.stdout if merged.returncode == 0 else None

    @staticmethod
    def _set_aside(file: Path) -> Path:
        old = file.with_name(file.name + ".old")
        count = 1
        while old.exists():
            count += 1
            old = file.with_name(f"{file.name}.old{count}")
        file.rename(old)
        return old

    # ---- the words ---------------------------------------------------------------------------------------------------
    def list(self) -> int:
        current = self.current()
        names = {each: f"{'' if rungs.named(each.rung).role == 'line' else '  '}{each.name}" for each in self.all}  # set in beside the ladder's line
        width = max(map(len, names.values()))
        minutes = 0
        for each in self.all:
            state = self.progress.of(each.name)
            mark = "passed" if state["passed"] else "begun" if self.file(each).is_file() else ""
            if state["gave_up"]:
                mark += ", solution seen"
            elif state["hints"]:
                mark += f", {state['hints']} of 3 hints"
            minutes += 0 if state["passed"] else each.minutes
            print(f"{'>' if each is current else ' '} {names[each]:<{width}}  {each.kind:<7}  {each.minutes:>3} min  {each.title}"
                  f"{f'  [{mark}]' if mark else ''}")
        passed = sum(self.progress.of(each.name)["passed"] for each in self.all)
        print(f"\n{passed} of {len(self.all)} passed" + (f", about {minutes / 60:.0f} h to go." if minutes >= 90 else f", about {minutes} min to go."
                                                       if minutes else "."))
        return DONE

    def show(self, exercise: Exercise) -> None:
        print(styled(f"{exercise.name}: {exercise.title}", "1") + f"   ({exercise.kind}, about {exercise.minutes} minutes)\n")
        for paragraph in re.split(r"\n\s*\n", exercise.task.strip()):
            if paragraph.startswith("# "):
                continue
            whole = re.sub(r"`[^`]+`", lambda code: code[0].replace(" ", "\xa0"), paragraph.replace("\n", " "))  # a command on one line
            print(paragraph if re.match(r"- |\||```|#|    ", paragraph) else textwrap.fill(whole, 100).replace("\xa0", " "), end="\n\n")
        print(f"Edit:   {styled(shown(self.file(exercise)), '1')}\n"
              "Then:   ./ladder learn check     stuck: ./ladder learn hint     all: ./ladder learn list")

    def start(self, exercise: Exercise) -> int:
        said = self.begin(exercise)
        if said:
            print(said, file=sys.stderr)
        self.show(exercise)
        return DONE

    def check(self, exercise: Exercise) -> int:
        file, state = self.file(exercise), self.progress.of(exercise.name)
        said = self.begin(exercise)
        if said:
            print(said, file=sys.stderr)
        began = time.monotonic()
        try:
            text = file.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise CourseError(f"{shown(file)} cannot be read: {error}\n  Anew, with yours beside it:  ./ladder learn reset") from None
        if not text.strip():
            raise CourseError(f"{shown(file)} is empty.\n  Anew:  ./ladder learn reset")
        verdict = exercise.judge(text, self.given(exercise).read_text(), self.progress.data["seed"], shown(file))
        state["checks"] += 1
        first = verdict.passed and not state["passed"]
        state["passed"] = state["passed"] or verdict.passed
        self.progress.save()
        if verdict.cost:
            self.enter(exercise, text, verdict.cost)
        print(verdict.text.rstrip())
        took = f"{time.monotonic() - began:.1f} s"
        if not verdict.passed:
            print(f"\n{styled('Not yet.', '1;31')}  {exercise.name}, check {state['checks']}, {took}")
            return FAILED
        beside = "./ladder learn board" if exercise.kind == "open" else "./ladder learn solution"
        print(f"\n{styled('Passed.', '1;32')}  {exercise.name}, {took}.  Ours beside yours:  {beside}")
        following = self.current()
        if following is None:
            print("That was the last one." if first else "All are passed.")
        else:
            print(f"Next:  ./ladder learn     ({following.name}: {following.title})")
        return DONE

    # ---- the board -------------------------------------------------------------------------------------------------------
    @staticmethod
    def board_file() -> Path:
        return work_folder() / "board.json"

    def entries(self) -> list[dict]:
        try:
            return json.loads(self.board_file().read_text())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise CourseError(f"{shown(self.board_file())} cannot be read: {error}\n  Without it the board begins anew:"
                              f"  mv {shown(self.board_file())} {shown(self.board_file())}.old") from None

    def enter(self, exercise: Exercise, text: str, cost) -> None:
        """A right kernel that is better than all before it is kept, with its text."""
        entries = self.entries()
        mine = [entry for entry in entries if entry["exercise"] == exercise.name and "clocks" in entry]
        if any(entry["flop_per_clk"] >= cost.flop_per_clk for entry in mine):
            return
        kept = self.file(exercise).with_name(f"best{len(mine) + 1}.cuh")
        kept.write_text(text)
        entries.append({"exercise": exercise.name, "kernel": kept.name, "flop_per_clk": cost.flop_per_clk, "clocks": cost.clocks,
                        "on": datetime.date.today().isoformat()})
        self.board_file().write_text(json.dumps(entries, indent=1) + "\n")

    def board(self) -> int:
        entries = self.entries()
        for exercise in self.all:
            if exercise.kind != "open":
                continue
            rows = [(entry["flop_per_clk"], f"yours, {entry['on']}", shown(self.file(exercise).with_name(entry["kernel"])))
                    for entry in entries if entry["exercise"] == exercise.name and "clocks" in entry]
            rows = sorted(rows, reverse=True)[:BEST]
            for rung in exercise.data["beside"]:
                cost = exercises.cost_of_rung(rung)
                rows.append((cost.flop_per_clk, rung, str(rungs.named(rung).directory)))
            print(styled(f"{exercise.name}: {exercise.title}", "1"))
            print("  FLOP/clk per SM, estimated from counts: if nothing overlaps")
            for flop_per_clk, who, where in sorted(rows, reverse=True):
                print(f"  {flop_per_clk:>6.0f}  {who:<20}  {where}")
            timed = [entry for entry in entries if entry["exercise"] == exercise.name and "tflops" in entry]
            for entry in timed[-BEST:]:
                print(f"  {entry['tflops']:.1f} TFLOPS on {entry['gpu']}, {exercise.rung} {entry['rung_tflops']:.1f} in the same run,"
                      f" {entry['on']}")
            print()
        return DONE

    def time(self, exercise: Exercise) -> int:
        if not exercise.free:
            raise Usage(f"{exercise.name} is no kernel of your own. Those of climb and open can be timed:  ./ladder learn list")
        file = self.file(exercise)
        if not file.is_file():
            raise Usage(f"{exercise.name} is not begun.\n  Here:  ./ladder learn start {exercise.name}")
        code, timed = self.timed(exercise.rung, file.parent)
        if timed:
            entries = self.entries()
            entries.append({"exercise": exercise.name, "tflops": float(timed["yours"]["tflops"]), "gpu": timed["yours"]["gpu"],
                            "rung_tflops": float(timed[exercise.rung]["tflops"]), "on": datetime.date.today().isoformat()})
            self.board_file().write_text(json.dumps(entries, indent=1) + "\n")
        return code

    def time_file(self, typed: str, like: str) -> int:
        """Of any kernel that `./ladder try` takes, exercise or not."""
        if not Path(typed).is_file():
            raise Usage(f"{typed or 'FILE'} is not there. A kernel in a file, and the rung that it stands for:  ./ladder learn time work/mine.cuh --like 03")
        rung = rungs.find(like)
        if not rung:
            raise Usage(rungs.no_such(like))
        if rung.default.needs_workspace or rung.default.writes_lse:
            raise Usage(f"{rung.name} takes more than Q, K, V and O, and cannot be timed beside a kernel of your own.")
        folder = work_folder() / ".timed"
        try:
            text = Path(typed).read_text()
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "kernel.cuh").write_text(text)
        except (OSError, UnicodeDecodeError) as error:
            raise Usage(f"{typed} cannot be copied to {shown(folder)}: {error}\n  Another place:  LADDER_WORK=FOLDER ./ladder learn time ..") from None
        return self.timed(rung.name, folder)[0]

    @staticmethod
    def timed(rung: str, folder: Path) -> tuple[int, dict[str, dict]]:
        """The folder's kernel.cuh as a peer of the bench: it is held to the reference there too, and what is wrong is not timed."""
        gpu = speed.gpu_here("What counts alone can say:  ./ladder learn board")
        peer, results = folder / "peer", folder / "times.csv"
        source = peer.with_suffix(".cu")
        source.write_text(speed.source_of_peer(rung))
        compiled = subprocess.run([*speed.nvcc_words(gpu), str(source), "-o", str(peer)], capture_output=True, text=True)
        if compiled.returncode != 0:
            raise CourseError(f"nvcc does not compile it.\n{(compiled.stderr or compiled.stdout).strip()[:2000]}")
        results.unlink(missing_ok=True)
        ran = subprocess.run([str(rungs.program()), "bench", rung, "--no-peers", "--peer", shlex.quote(str(peer.absolute())), "--csv", str(results)])
        if ran.returncode != 0:
            return ran.returncode, {}
        with results.open() as rows:
            timed = {row["stage"]: row for row in csv.DictReader(rows)}
        return (DONE, timed) if "yours" in timed else (FAILED, {})  # the bench has said why

    def hint(self, exercise: Exercise) -> int:
        state = self.progress.of(exercise.name)
        state["hints"] = min(state["hints"] + 1, len(exercise.hints))
        for level, hint in enumerate(exercise.hints[: state["hints"]], 1):
            print(f"{level} of {len(exercise.hints)}: " + hint)
        self.progress.save()
        return DONE

    def reset(self, exercise: Exercise) -> int:
        file = self.file(exercise)
        exercise.skeleton(self.progress.data["seed"])  # there is one, before yours is put aside
        if file.is_file():
            print(f"Your file is now {shown(self._set_aside(file))}.")
        self.given(exercise).unlink(missing_ok=True)
        self.begin(exercise)
        print(f"Anew: {shown(file)}")
        return DONE

    def solution(self, exercise: Exercise, give_up: bool) -> int:
        state = self.progress.of(exercise.name)
        if not state["passed"] and not give_up:
            raise Usage(f"{exercise.name} is not passed yet.\n  A hint:  ./ladder learn hint\n"
                        "  The solution all the same, which is recorded:  ./ladder learn solution --give-up")
        if not state["passed"]:
            state["gave_up"] = True
            self.progress.save()
        seed = self.progress.data["seed"]
        solution = exercise.solution(seed)
        if exercise.kind == "predict":
            print(solution, end="")
            return DONE
        before = self.file(exercise).read_text() if self.file(exercise).is_file() else exercise.skeleton(seed)
        for line in list(difflib.unified_diff(exercises.normal(before), exercises.normal(solution), "yours", "ours", lineterm="")):
            print(styled(line, "32") if line.startswith("+") else styled(line, "31") if line.startswith("-") else line)
        print(f"\nThe whole kernel: {shown(rungs.named(exercise.rung).path / 'kernel.cuh')}")
        return DONE

    def go_on(self) -> int:
        exercise = self.current()
        if exercise is None:
            print(f"All {len(self.all)} exercises are passed.  ./ladder learn list")
            return DONE
        self.start(exercise)
        if not sys.stdout.isatty() or not sys.stdin.isatty():
            return DONE
        return self.watch(exercise)

    def watch(self, exercise: Exercise) -> int:
        """A check each time the file is saved, until it passes or Ctrl-C. In an open exercise there is always a better kernel."""
        file = self.file(exercise)
        print("\nIt is checked each time you save it. Ctrl-C ends this.")
        seen = file.stat().st_mtime_ns
        while True:
            time.sleep(POLL_S)
            with contextlib.suppress(FileNotFoundError):  # an editor may be at it
                now = file.stat().st_mtime_ns
                if now == seen:
                    continue
                seen = now
                print("\033[2J\033[H", end="")
                try:
                    if self.check(exercise) == DONE and exercise.kind != "open":
                        return DONE
                except CourseError as error:
                    print(error)
                print("\nSave it again, and it is checked again. Ctrl-C ends this.")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./ladder learn", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("word", nargs="?", default="", metavar="WORD", help=", ".join(WORDS))
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help="of an exercise, or its number; default: the one at hand")
    parser.add_argument("--like", default="", metavar="RUNG", help="time: NAME is a file, and this is the rung that its kernel stands for")
    parser.add_argument("--seed", help="your name: it chooses which bug you hunt and which numbers you predict; kept")
    parser.add_argument("--give-up", action="store_true", help="solution: before you have passed")
    typed = parser.parse_args(arguments)
    if typed.word and typed.word not in WORDS:
        near = difflib.get_close_matches(typed.word, WORDS, 1)
        raise Usage(f"learn has no word '{typed.word}'.{f' Did you mean {near[0]}?' if near else ''}\n  There are: {', '.join(WORDS)}\n"
                    "  What they do:  ./ladder learn --help")
    if typed.like and typed.word != "time":
        raise Usage(f"--like is for time.\n  Whether a kernel is right:  ./ladder try FILE --like {typed.like}")
    if typed.word == "time" and not typed.like and typed.name.endswith((".cuh", ".cu")):
        raise Usage(f"{typed.name} is a file. Which rung does it stand for?\n  For example:  ./ladder learn time {typed.name} --like 03")
    learner = Learner()
    if typed.word == "time" and typed.like:
        return learner.time_file(typed.name, typed.like)
    if typed.seed is not None and typed.seed != learner.progress.data["seed"]:
        learner.progress.data["seed"] = typed.seed
        learner.progress.save()
    if typed.word == "list":
        return learner.list()
    if not typed.word:
        return learner.go_on()
    if typed.word == "board":
        return learner.board()
    if typed.word == "start":
        return learner.start(learner.named(typed.name) if typed.name else learner.current() or learner.all[-1])
    exercise = learner.named(typed.name) if typed.name else learner.begun()
    match typed.word:
        case "check":
            return learner.check(exercise)
        case "hint":
            return learner.hint(exercise)
        case "reset":
            return learner.reset(exercise)
        case "time":
            return learner.time(exercise)
        case _:
            return learner.solution(exercise, typed.give_up)


if __name__ == "__main__":
    exercises.run(main)
