"""What `./ladder learn time` needs to take the time of a student's kernel: a GPU, nvcc, and a peer of the bench made of the kernel."""
from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass

from tools import rungs
from tools.course.exercises import NotHere
from tools.paths import ROOT


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
