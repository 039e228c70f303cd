"""What the package says of itself: every argument in its docstring, with shapes, results and errors."""
from __future__ import annotations

import ast
import re
import unittest

from tools.paths import ROOT
from tools.site import api

MODULES = ("flash_ladder", "flash_ladder.ring", "flash_ladder.transformers")
ARRAYS = re.compile(r"q|k|v|qkv|kv|x|k_cache|v_cache|cu_seqlens\w*|alibi_slopes|sink|mask_intervals|block_mask|block_table|cache_batch_idx")
SHAPE = re.compile(r"\[\w+.*\]|^As |^None\.|, as ")


class Docstrings(unittest.TestCase):
    def test_each_argument_is_described_and_each_array_has_a_shape(self) -> None:
        seen = 0
        for module in MODULES:
            for name, node in api.public(module).items():
                said = api.said_of(node)
                self.assertTrue(said.text, name)
                if isinstance(node, ast.ClassDef):
                    fields = [each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and each.target.id.islower()]
                    self.assertEqual(list(said.entries("Attributes")), fields, name)
                    continue
                entries = said.entries("Args")
                self.assertEqual(list(entries), api.parameters(node), name)
                for argument, words in entries.items():
                    seen += 1
                    if ARRAYS.fullmatch(argument):
                        self.assertRegex(words, SHAPE, f"{name}, {argument}")
                if entries:
                    self.assertTrue(said.sections.get("Returns"), name)
                    self.assertTrue(said.entries("Raises"), name)
        self.assertGreater(seen, 50)

    def test_a_section_is_taken_apart(self) -> None:
        (node,) = ast.parse('def f(a, *b):\n    """Says.\n\n    More.\n\n    Args:\n        a: One\n            two.\n        *b: Three: four.\n\n    Returns:\n        Five.\n    """').body
        said = api.said_of(node)
        self.assertEqual((said.text, said.entries("Args"), said.sections["Returns"]), ("Says.\n\nMore.", {"a": "One two.", "*b": "Three: four."}, "Five."))
        self.assertEqual((api.parameters(node), api.signature(node)), (["a", "*b"], "f(a, *b)"))


class Table(unittest.TestCase):
    def test_what_becomes_of_each_of_flash_attns_arguments(self) -> None:
        page = (ROOT / "docs" / "call.md").read_text(encoding="utf-8")
        section = page.partition("\n## flash-attn's arguments, and what becomes of each\n")[2].partition("\n## ")[0]
        told = {name for cell in re.findall(r"^\| (`[^|]*) \|", section, re.M) for name in re.findall(r"`(\w+)`", cell)}
        taken = {argument for name, node in api.public("flash_ladder").items() if name.startswith("flash_attn") for argument in api.parameters(node)}
        self.assertGreater(len(taken), 20)
        self.assertEqual({each for each in taken if not each.startswith("*")} - told, set())


if __name__ == "__main__":
    unittest.main()
