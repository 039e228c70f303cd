"""Marks for speed: a right kernel on the GPU, in turns with the exercise's own rung in one run of `ladder compare`.

Both are compiled from text by nvcc as peers of the bench (harness/peers/course.cuh), in the same way, and the submission's lives in a cage. What counts is
the lower end of the paired ratio's 95 % interval, in steps so coarse that a second run gives the same marks: course/grading.md.
"""
from __future__ import annotations

import json
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tools import rungs
from tools.course import cage as cages, exercises
from tools.course.exercises import Exercise, NotHere
from tools.paths import ROOT

# Of the rung's rate, and the share of the marks. None is near 1, where a kernel as fast as the rung is, and none within 5 % of another.
STEPS = ((0.95, 1.0), (0.80, 0.75), (0.60, 0.5), (0.40, 0.25))
LIMIT_S = 1800  # for one comparison, which takes a minute or two
PROTOCOL: tuple[str, ...] = ("--batch", "2")  # flags of `compare`: an eighth of the usual shape, whose tensors take longer to hand over than to time
SHARED = ("/dev/shm", tempfile.gettempdir())  # where the bench puts tensors


def share(lower_end: float) -> float:
    return next((part for least, part in STEPS if lower_end >= least), 0.0)


@dataclass(frozen=True)
class Gpu:
    name: str
    sm: int  # 90
    nvcc: str

    @property
    def architecture(self) -> str:
        return f"{self.sm}{'a' if self.sm == 90 else ''}"


def gpu_here(way_out: str) -> Gpu:
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    asked = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap,name", "--format=csv,noheader"], capture_output=True,
                           text=True) if shutil.which("nvidia-smi") else None
    found = re.match(r"(\d+)\.(\d)(?:, (.*))?", asked.stdout) if asked and asked.returncode == 0 else None
    if not nvcc or not found:
        raise NotHere(f"To take times there must be a GPU and nvcc; here is no {'GPU' if nvcc else 'nvcc'}.\n  {way_out}")
    return Gpu(found[3] or "", int(found[1] + found[2]), nvcc)


def source_of_peer(rung: str) -> str:
    return f'#include "kernel.cuh"\nusing Tile = {rungs.named(rung).default.config};\n#include "harness/peers/course.cuh"\n'


def nvcc_words(gpu: Gpu) -> list[str]:
    return [gpu.nvcc, "-std=c++20", "-O3", "-gencode", f"arch=compute_{gpu.architecture},code=sm_{gpu.architecture}", f"-I{ROOT}"]


def unlike_the_emulated(text: str) -> str:
    """What would be another kernel for nvcc than the one that the emulator has judged, or remember something from launch to launch; or
    nothing. `ladder try` has refused macros, raw text and lines that go on in the next one."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|(?<!\w)'(?:\\.|[^'\\\n])+'", " ", text, flags=re.S)
    if found := re.search(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b", code, re.M):
        return f"#{found[1]}"
    if found := re.search(r"\b(static(?!\s+constexpr\b)|thread_local|new|malloc|cu[A-Z]\w*|cuda\w*|__(?:CUDA|NV|nv|managed|constant)\w*)\b", code):
        return found[1]
    for found in re.finditer(r"\b__device__\b([^;{=]*)([;{=])", code):
        if found[2] != "{" or "(" not in found[1]:  # a variable, and no function
            return f"__device__{found[1]}".strip()
    return ""


class Race:
    """Against the rung of one exercise, on one GPU. Started once; submissions then take their turns one by one."""

    def __init__(self, exercise: Exercise, gpu: Gpu, cage: cages.Cage, memory: int):
        self.gpu = gpu
        rung = rungs.named(exercise.rung)
        if self.gpu.sm < rung.min_sm:
            raise NotHere(f"{rung.name} needs sm_{rung.min_sm}, and {self.gpu.name or 'this GPU'} is sm_{self.gpu.sm}.")
        self.exercise, self.cage, self.memory = exercise, cage, memory
        self.reference, words = self._compiled(exercise.solution())
        if not self.reference:
            raise NotHere(f"nvcc does not compile {rung.name} itself here, so that nobody's speed can be marked:\n{words}")

    def prove(self) -> None:
        """The rung in the place of a submission is as fast as itself; or this machine cannot tell."""
        part, words = self.timed(self.exercise.solution())
        if part < 1:
            raise NotHere(f"{self.exercise.rung} against itself does not get all marks for speed here, so that nobody's can be marked:\n{words}\n"
                          "  Does something else use the GPU?  nvidia-smi")

    def _compiled(self, text: str) -> tuple[bytes, str]:
        """The program, or what nvcc said."""
        with tempfile.TemporaryDirectory(prefix="ladder-speed-") as made:
            folder = Path(made)
            folder.chmod(0o755)
            for file, content in (("kernel.cuh", text), ("peer.cu", source_of_peer(self.exercise.rung))):
                (folder / file).write_text(content)
            toolkit = Path(self.gpu.nvcc).resolve().parents[1]
            script = '"$@" -o "$TMPDIR/peer" >&2 && cat "$TMPDIR/peer"'
            # What each launch begins with is wiped: harness/peers/course.cuh.
            words = [*nvcc_words(self.gpu), "-DPEER_WIPES", str(folder / "peer.cu")]
            visible = [] if Path("/usr") in toolkit.parents else [toolkit]
            ended = self.cage.run(["sh", "-c", script, "sh", *words], reads=[folder, *visible])
        if ended.code == 0 and ended.stdout:
            return ended.stdout, ""
        said = ended.stderr.decode(errors="replace").replace(f"{folder}/", "").strip()
        return b"", said[:2000] or f"nvcc ended with {ended.code}{f', and took too much {ended.stopped}' if ended.stopped else ''}."

    def timed(self, text: str) -> tuple[float, str]:
        """The share of the marks, and why; below 0 where it could not be timed. No measured figure is in it."""
        if odd := unlike_the_emulated(text):
            return -1, f"Not timed: '{odd}' is for no kernel whose speed is marked: course/grading.md, Speed."
        program, words = (self.reference, "") if text == self.exercise.solution() else self._compiled(text)
        if not program:
            return -1, f"Not timed: nvcc does not compile it.\n{words}"
        ratio, words = self._raced(program)
        if ratio is None:
            return -1, f"Right on the emulator, and not timed on the GPU.\n{words}"
        earned = share(ratio["lo"])
        least = next((least for least, part in STEPS if part == earned), None)
        return earned, (f"Speed: at least {least:.2f} of {self.exercise.rung} in the same run." if least else
                        f"Speed: less than {STEPS[-1][0]:.2f} of {self.exercise.rung} in the same run.")

    def _raced(self, program: bytes) -> tuple[dict | None, str]:
        prefix = f"ladder-caged-{secrets.token_hex(8)}-"
        before = cages.adopt()
        with tempfile.TemporaryDirectory(prefix="ladder-speed-") as made:
            folder = Path(made)
            folder.chmod(0o755)
            words = [str(rungs.program()), "compare", "peer:reference", "peer:yours", "--no-peers", "--json", "-", *PROTOCOL]
            for name, content in (("reference", self.reference), ("yours", program)):
                (folder / name).write_bytes(content)
                (folder / name).chmod(0o755)
                peer = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-B", "-m", "tools.course.caged_peer", self.cage.kind, str(self.memory), prefix, name,
                        str(folder / name)]
                words += ["--peer", shlex.join(["exec", *peer])]
            try:
                ran = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, stdin=subprocess.DEVNULL)
                said, rows = ran.stderr.strip(), ran.stdout
            except subprocess.TimeoutExpired:
                said, rows = "It had not ended in time.", ""
            finally:
                cages.end_all(before)
                for shared in SHARED:
                    for left in Path(shared).glob(f"{prefix}*"):
                        shutil.rmtree(left, ignore_errors=True)
        try:
            return next(row["over"] for row in json.loads(rows) if row["stage"] == "yours" and "over" in row), ""
        except (ValueError, KeyError, TypeError, StopIteration):
            about = [line for line in said.splitlines() if re.search(r"peer (yours|reference): (?!no version)", line)] or said.splitlines()[-5:]
            return None, "\n".join(about)[:2000]
