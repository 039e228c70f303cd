"""What the tests of plots and chapters share: an invented ladder in place of the built program, its invented results, and a folder.

Importing this makes the modules of harness/plots and docs/site importable, and asks the invented ladder from then on.
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
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
PLOTS, SITE = ROOT / "harness" / "plots", ROOT / "docs" / "site"
FIXTURE = ROOT / "harness" / "tests" / "fixtures" / "results.csv"
sys.path[:0] = [str(folder) for folder in (ROOT, PLOTS, SITE, Path(__file__).parent)]
import fake_ladder  # noqa: E402

_folder = tempfile.mkdtemp()
atexit.register(shutil.rmtree, _folder)
BUILT = os.environ.get("LADDER")  # for who asks the built program after all
os.environ["LADDER"] = str(fake_ladder.write(Path(_folder) / "ladder"))


class Scratch(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_script(self, name: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess:
        script = next(folder / f"{name}.py" for folder in (PLOTS, SITE) if (folder / f"{name}.py").is_file())
        return subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, **environment})

    def run_here(self, name: str, *arguments: object) -> int:
        """The same in this process, which has matplotlib already; the exit code."""
        script = next(folder / f"{name}.py" for folder in (PLOTS, SITE) if (folder / f"{name}.py").is_file())
        with mock.patch.object(sys, "argv", [str(script), *map(str, arguments)]), contextlib.redirect_stdout(io.StringIO()):
            try:
                runpy.run_path(str(script), run_name="__main__")
            except SystemExit as ended:
                return ended.code or 0
        return 0

    def csv(self, *edits: tuple[str, str]) -> Path:
        """The fixture with some text replaced."""
        text = FIXTURE.read_text()
        for old, new in edits:
            self.assertIn(old, text)
            text = text.replace(old, new, 1)
        path = self.folder / "broken.csv"
        path.write_text(text)
        return path
