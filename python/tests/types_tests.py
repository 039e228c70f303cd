"""Types: what strict checkers say of a caller, for which it takes mypy or pyright; and whether the stub says what is there."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import flash_ladder

HERE = Path(__file__).parent
CHECKERS = [name for name in ("mypy", "pyright") if importlib.util.find_spec(name)]
WRONG = """\
import flash_ladder
import numpy as np

q = np.zeros((1, 64, 1, 64), np.float16)
flash_ladder.attention(q, q, q, casual=True)
"""


def checked(checker: str, *files: Path | str) -> subprocess.CompletedProcess:
    if checker == "mypy":
        command = ["mypy", "--strict", "--cache-dir", os.devnull, "--no-error-summary", *files]
    else:
        command = ["pyright", "--pythonpath", sys.executable, *files]
    return subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True)


class Types(unittest.TestCase):
    @unittest.skipUnless(CHECKERS, "neither mypy nor pyright is there")
    def test_caller(self):
        for checker in CHECKERS:
            with self.subTest(checker):
                ran = checked(checker, HERE / "a_caller.py")
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    @unittest.skipUnless(CHECKERS, "neither mypy nor pyright is there")
    def test_wrong_caller(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "wrong.py")
            file.write_text(WRONG)
            for checker in CHECKERS:
                with self.subTest(checker):
                    ran = checked(checker, file)
                    self.assertEqual(ran.returncode, 1, ran.stdout + ran.stderr)
                    self.assertRegex(ran.stdout, "wrong.py:5.*(casual|No overloads)")

    def test_stub_says_what_is_there(self):
        said = {}
        for node in ast.parse(Path(flash_ladder.__file__).with_name("__init__.pyi").read_text()).body:
            if isinstance(node, ast.FunctionDef):
                names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                said.setdefault(node.name, []).append(names)
            elif isinstance(node, ast.ClassDef):
                said[node.name] = [[each.target.id for each in node.body if isinstance(each, ast.AnnAssign)]]
        self.assertEqual(sorted(said), sorted(flash_ladder.__all__))
        for name, overloads in said.items():
            parameters = inspect.signature(getattr(flash_ladder, name)).parameters.values()
            named = [each.name for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
            if name.endswith("packed_func"):  # and what flash_attn_func has behind q, k and v
                unpacked = flash_ladder.flash_attn_varlen_func if "varlen" in name else flash_ladder.flash_attn_func
                rest = list(inspect.signature(unpacked).parameters)
                named += rest[rest.index("dropout_p") :]
            for each in overloads:
                self.assertEqual(sorted(each), sorted(named), name)

    def test_caller_runs(self):
        ran = subprocess.run([sys.executable, HERE / "a_caller.py"], capture_output=True, text=True)
        self.assertEqual(ran.returncode, 0, ran.stderr)


if __name__ == "__main__":
    unittest.main()
