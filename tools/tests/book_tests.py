"""What pages say in code: the NumPy of docs/softmax.md and of the backward pass is run as it stands there, worked numbers are computed again,
and the dictionary of docs/kernels.md is compiled by nvcc, where there is one."""
from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from math import exp
from pathlib import Path

import numpy

from tools.paths import ROOT, SITE

SOFTMAX = (ROOT / "docs" / "softmax.md").read_text(encoding="utf-8")
DIALECT = SITE / "dialect.cu"


def function_on(page: str, name: str):
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S)[1], names)
    return names[name]


class Softmax(unittest.TestCase):
    def attention(self):
        return function_on(SOFTMAX, "attention")

    def test_the_lines_on_the_page_are_attention(self) -> None:
        draw = numpy.random.default_rng(1)
        for spread in (1.0, 30.0):
            q, K, V = spread * draw.standard_normal(16), spread * draw.standard_normal((24, 16)), draw.standard_normal((24, 8))
            scores = K @ q / 4.0
            weights = numpy.exp(scores - scores.max())
            wanted = weights @ V / weights.sum()
            for tile in (1, 2, 5, 24, 100):
                numpy.testing.assert_allclose(self.attention()(q, K, V, tile), wanted, rtol=1e-12)

    def test_the_numbers_by_hand(self) -> None:
        table = re.search(r"^\| tile 1:.*\n\| tile 2:.*$", SOFTMAX, re.M)[0].split("\n")
        row_max, row_sum, out = -float("inf"), 0.0, 0.0
        for line, scores, values in zip(table, ((1, 3), (2, 5)), ((10, 20), (30, 40))):
            new_max = max(row_max, *scores)
            correction, weights = exp(row_max - new_max), [exp(score - new_max) for score in scores]
            row_sum, out = row_sum * correction + sum(weights), out * correction + sum(w * v for w, v in zip(weights, values))
            row_max = new_max
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            self.assertEqual((cells[1], cells[3]), (f"{row_max:g}", ", ".join(f"{weight:.3f}" for weight in weights)))
            self.assertTrue(cells[4].endswith(f"{row_sum:.3f}") and cells[5].endswith(f"{out:.3f}"), cells)
            self.assertEqual(cells[2].endswith(f"= {correction:.3f}"), correction > 0, cells)
        self.assertIn(f"The answer is {out:.3f} / {row_sum:.3f} = {out / row_sum:.3f}, with all digits kept.", SOFTMAX)
        whole = [exp(score - 5) for score in (1, 3, 2, 5)]
        self.assertIn(f"the weights {', '.join(f'{weight:.3f}' for weight in whole)} sum to {sum(whole):.3f}", SOFTMAX)


class Gradients(unittest.TestCase):
    def test_the_lines_of_the_chapter_are_the_gradients_of_the_loss(self) -> None:
        chapters = [path.read_text(encoding="utf-8") for path in (ROOT / "backward").glob("*/README.md")]
        gradients = function_on(next(chapter for chapter in chapters if "```python" in chapter), "gradients")
        draw, scale, step = numpy.random.default_rng(1), 0.4, 1e-5
        tensors = [draw.standard_normal((rows, 8)) for rows in (6, 5, 5)]
        dO = draw.standard_normal((6, 8))

        def forward(Q, K, V):
            weights = numpy.exp(scale * Q @ K.T)
            total = weights.sum(axis=1, keepdims=True)
            return weights @ V / total, numpy.log(total)

        def slope(which: int, at: tuple[int, int]) -> float:
            moved = [[tensor.copy() for tensor in tensors] for _ in range(2)]
            moved[0][which][at] += step
            moved[1][which][at] -= step
            up, down = ((dO * forward(*each)[0]).sum() for each in moved)
            return (up - down) / (2 * step)

        O, LSE = forward(*tensors)
        for tile in (1, 2, 5, 9):
            got = gradients(*(each.astype("f4") for each in (*tensors, O, LSE, dO)), numpy.float32(scale), tile)
            for which, gradient in enumerate(got):
                self.assertEqual(gradient.dtype, numpy.float32)
                wanted = [[slope(which, (row, column)) for column in range(8)] for row in range(len(gradient))]
                numpy.testing.assert_allclose(gradient, wanted, atol=5e-6)


class Dialect(unittest.TestCase):
    def test_ours_are_words_of_the_header(self) -> None:
        header = (ROOT / "common" / "gpu.cuh").read_text(encoding="utf-8") + "".join(
            path.read_text(encoding="utf-8") for path in (ROOT / "common" / "ptx").glob("*.cuh"))
        ours = re.findall(r"^ *\{ .+ \}\n *\{ (.+) \}$", DIALECT.read_text(encoding="utf-8"), re.M)
        called = set(re.findall(r"\b([a-z]\w+)(?:<\d+>)?\(", " ".join(ours))) - {"fmaxf", "__float_as_uint", "__uint_as_float"}
        self.assertGreater(len(called), 10)
        for name in called:
            self.assertRegex(header, rf"\b{name}\(", name)

    @unittest.skipUnless(shutil.which("nvcc"), "nvcc compiles the plain lines")
    def test_both_columns_compile(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(["nvcc", "-std=c++20", "-arch=sm_80", "-Werror", "all-warnings", f"-I{ROOT}", "-c", DIALECT, "-o", Path(folder) / "dialect.o"],
                                 capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[1:]])
