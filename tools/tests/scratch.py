"""What the tests of plots and chapters share: an invented ladder in place of the built program, its invented results, and a folder.

Who imports this asks the invented ladder from then on.
"""
from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import results
from tools.paths import ROOT
from tools.plots import __main__ as plots
from tools.tests import fake_ladder
from tools.tests.ended import ended

FIXTURE = ROOT / "harness" / "tests" / "fixtures" / "results.csv"

_folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _folder)
BUILT = os.environ.get("LADDER")  # for who asks the built program after all
os.environ["LADDER"] = str(fake_ladder.write(Path(_folder) / "ladder"))


class Scratch(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def plot(self, name: str, *arguments: object, ends: int = 0) -> str:
        """A figure, drawn in this process, which has matplotlib already; what it says on stderr."""
        results._notes.clear()  # about files of which nothing was drawn
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = plots.main([name, *map(str, arguments)])
        self.assertEqual(code, ends, said.getvalue())
        return said.getvalue()

    def run_anew(self, name: str, *arguments: object, ends: int | None = None,
                 **environment: str) -> subprocess.CompletedProcess:
        """A module of tools, "site.readme", as a reader starts it."""
        return ended(subprocess.run([sys.executable, "-m", f"tools.{name}", *map(str, arguments)], capture_output=True,
                                    text=True, cwd=ROOT, env={**os.environ, **environment}), ends)

    def csv(self, *edits: tuple[str, str]) -> Path:
        """The fixture with some text replaced."""
        text = FIXTURE.read_text()
        for old, new in edits:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        path = self.folder / "broken.csv"
        path.write_text(text)
        return path
