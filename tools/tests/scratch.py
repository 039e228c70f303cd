"""What the tests of plots and chapters share: an invented ladder in place of the built program, its invented results, and a folder.

Who imports this asks the invented ladder from then on.
"""
from __future__ import annotations

import atexit
import contextlib
import io
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
import unittest
from pathlib import Path
from unittest import mock

from tools.paths import ROOT
from tools.tests import fake_ladder
from tools.tests.ended import ended

FIXTURE = ROOT / "harness" / "tests" / "fixtures" / "results.csv"

_folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _folder)
BUILT = os.environ.get("LADDER")  # for who asks the built program after all
os.environ["LADDER"] = str(fake_ladder.write(Path(_folder) / "ladder"))


def module(name: str) -> str:
    return f"tools.{name}" if "." in name else f"tools.plots.{name}"


class Scratch(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_script(self, name: str, *arguments: object, ends: int | None = None) -> subprocess.CompletedProcess:
        """A script of plots/, "climb", or another one, "site.readme", in a copy of this process, which has matplotlib already."""
        command = [name, *map(str, arguments)]
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            copy = os.fork()
            if copy == 0:
                code = 1
                try:
                    os.chdir(ROOT)
                    sys.argv = command
                    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                        code = self._run(name)
                finally:
                    out.flush(), err.flush()
                    os._exit(code)
            code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
            out.seek(0), err.seek(0)
            return ended(subprocess.CompletedProcess(command, code, out.read(), err.read()), ends)

    def run_anew(self, name: str, *arguments: object, ends: int | None = None,
                 **environment: str) -> subprocess.CompletedProcess:
        """The same in a process of its own, as a reader starts it."""
        return ended(subprocess.run([sys.executable, "-m", module(name), *map(str, arguments)], capture_output=True,
                                    text=True, cwd=ROOT, env={**os.environ, **environment}), ends)

    def _run(self, name: str) -> int:
        try:
            runpy.run_module(module(name), run_name="__main__")
        except SystemExit as ended:
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
            return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:
            traceback.print_exc()
            return 1
        return 0

    def run_here(self, name: str, *arguments: object) -> int:
        """The same in this process, which has matplotlib already; the exit code."""
        with mock.patch.object(sys, "argv", [name, *map(str, arguments)]), contextlib.redirect_stdout(io.StringIO()):
            return self._run(name)

    def csv(self, *edits: tuple[str, str]) -> Path:
        """The fixture with some text replaced."""
        text = FIXTURE.read_text()
        for old, new in edits:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        path = self.folder / "broken.csv"
        path.write_text(text)
        return path
