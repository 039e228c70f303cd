"""What a release says of itself: version, changelog, citation; and `make release`, in a clone where its steps are stubs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parents[2]
STEPS = (".ci/run", ".ci/nightly", "ladder", "harness/release/first_hour")
STUB = """#!/bin/bash
echo "$0 $*" >> "$STUB_LOG"
[[ $0 != *"${STUB_RED:-none}" ]] || exit 1
[[ $0 != *"${STUB_ELSEWHERE:-none}" ]] || exit 77
"""


def version() -> str:
    return re.findall(r'^__version__ = "(.*)"', (ROOT / "python/flash_ladder/__init__.py").read_text(), re.M)[0]


class Says(unittest.TestCase):
    def test_the_changelog_begins_with_this_version(self) -> None:
        newest = re.findall(r"^## (\S+), (unreleased|\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
        self.assertEqual(newest[0], version())

    def test_the_version_is_said_once(self) -> None:
        said = f"(version|VERSION)\\S*[ =:]+[\"']?{re.escape(version())}([\"' )]|$)"
        found = subprocess.run(["git", "grep", "-lE", said, "--", "*.toml", "*.cff", "*.py", "CMakeLists.txt"], cwd=ROOT, capture_output=True, text=True)
        self.assertEqual(found.stdout.split(), ["python/flash_ladder/__init__.py"])


class Release(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.clone, self.log = Path(folder.name, "clone"), Path(folder.name, "log")
        for name in ("Makefile", "CHANGELOG.md", "harness/release/release", "python/flash_ladder/__init__.py"):
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.clone / name)
        for name in STEPS:
            (self.clone / name).parent.mkdir(parents=True, exist_ok=True)
            (self.clone / name).write_text(STUB)
            (self.clone / name).chmod(0o755)
        changelog = self.clone / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("unreleased", "2030-01-31"))
        self.git("init", "-q")
        self.commit()

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments], cwd=self.clone, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", "x")

    def release(self, **environment: str) -> subprocess.CompletedProcess:
        self.log.write_text("")
        return subprocess.run(["make", "release"], cwd=self.clone, env={**os.environ, "STUB_LOG": str(self.log), **environment},
                              capture_output=True, text=True)  # fmt: skip

    def test_all_steps_in_their_order(self) -> None:
        run = self.release(STUB_ELSEWHERE="first_hour")
        self.assertEqual(run.returncode, 0, run.stderr)
        called = [line.split()[0].removeprefix("./") for line in self.log.read_text().splitlines()]
        self.assertEqual(called, [".ci/run", ".ci/nightly", "ladder", "harness/release/first_hour", "ladder"])
        self.assertIn("Cannot run here, so run it elsewhere: harness/release/first_hour\n", run.stdout)
        self.assertIn(f"git tag -a v{version()} ", run.stdout)

    def test_red_is_no_release(self) -> None:
        run = self.release(STUB_RED="nightly")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("Red: .ci/nightly, exit code 1\n", run.stdout)
        self.assertNotIn("git tag", run.stdout)
        self.assertIn("first_hour", self.log.read_text())  # a red step hides none behind it

    def test_refuses_before_it_begins(self) -> None:
        (self.clone / "new").touch()
        run = self.release()
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("The tree is not clean; a release is a commit:\n?? new\n", run.stderr)
        changelog = self.clone / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("2030-01-31", "unreleased"))
        self.commit()
        self.assertIn(f"## {version()}, YYYY-MM-DD", self.release().stderr)
        changelog.write_text(changelog.read_text().replace("unreleased", "2030-01-31"))
        self.commit()
        self.git("tag", f"v{version()}")
        self.assertIn(f"v{version()} is out already", self.release().stderr)
        self.assertEqual(self.log.read_text(), "")


if __name__ == "__main__":
    unittest.main()
