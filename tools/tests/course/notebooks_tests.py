"""The notebooks of the course: as they are committed; and, where nbclient and ipykernel are (.ci/nightly has them), run from the first
cell to the last: each kernel that they begin with is refused, and each answer that they give passes."""
from __future__ import annotations

import copy
import importlib.util
import json
import re
import unittest

from tools import kernel_parts, rungs
from tools.paths import ROOT

FOLDER = ROOT / "course" / "notebooks"
MISSING = [name for name in ("nbclient", "ipykernel", "flash_ladder", "matplotlib") if not importlib.util.find_spec(name)]
SHOWN = {"picture": "image/svg+xml", "table": "text/markdown", "draw": "image/png", r"plt\.show": "image/png"}
MAGIC = re.compile(r"%%kernel (\S+) (\S+)(.*)\n")


def notebooks() -> dict[str, dict]:
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.ipynb"))}


def source(cell: dict) -> str:
    return "".join(cell["source"])


def is_answer(cell: dict) -> bool:
    return "answer" in cell["metadata"].get("tags", [])


class AsCommitted(unittest.TestCase):
    def test_there_are_three_and_their_first_cells_are_alike(self) -> None:
        found = notebooks()
        self.assertEqual(len(found), 3)
        self.assertEqual(len({next(source(cell) for cell in notebook["cells"] if cell["cell_type"] == "code") for notebook in found.values()}), 1)

    def test_no_output_is_committed(self) -> None:
        for name, notebook in notebooks().items():
            ids = [cell["id"] for cell in notebook["cells"]]
            self.assertEqual(len(set(ids)), len(ids), name)
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), f"{name}: {source(cell)}")

    def test_a_cell_of_a_kernel_names_a_part_of_it(self) -> None:
        for name, notebook in notebooks().items():
            cells = [MAGIC.match(source(cell)) for cell in notebook["cells"]]
            self.assertTrue(any(cells), name)
            for rung, part, _ in (cell.groups() for cell in cells if cell):
                text = rungs.named(rung).kernel.read_text(encoding="utf-8").splitlines()
                word, _, which = part.partition(":")
                find = kernel_parts.part_lines if word in kernel_parts.PARTS else kernel_parts.function_lines
                self.assertGreaterEqual(len(find(text, word)), int(which or 1), f"{name}: {rung} {part}")

    def test_links_and_pictures_are_there(self) -> None:
        for name, notebook in notebooks().items():
            text = "\n".join(source(cell) for cell in notebook["cells"])
            for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", text):
                self.assertTrue((FOLDER / link).exists(), f"{name}: {link}")
            for path in re.findall(r'picture\("(.*?)"\)', text):
                self.assertTrue((ROOT / path).is_file(), f"{name}: {path}")


@unittest.skipIf(MISSING, f"not installed: {', '.join(MISSING)}")
class Executed(unittest.TestCase):
    def execute(self, name: str) -> list:
        """Its cells with what they gave, and behind each kernel's own that of the answer to it."""
        import nbformat
        from nbclient import NotebookClient

        notebook = nbformat.read(FOLDER / name, as_version=4)
        nbformat.validate(notebook)
        cells = []
        for cell in notebook.cells:
            cells.append(cell)
            if is_answer(cell):
                asked = copy.deepcopy(next(each for each in reversed(cells) if MAGIC.match(each.source)))
                asked.id += "-answer"
                asked.source = asked.source.partition("\n")[0] + "\n" + re.search(r"```cpp\n(.*?)```", cell.source, re.S)[1]
                cells.append(asked)
        notebook.cells = cells
        NotebookClient(notebook, timeout=1800, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
        return cells

    def check(self, name: str) -> None:
        kernels = 0
        for cell in self.execute(name):
            if cell.cell_type != "code":
                continue
            said = "".join(output.get("text", "") for output in cell.outputs)
            shown = {kind for output in cell.outputs for kind in output.get("data", {})}
            with self.subTest(cell.source):
                if MAGIC.match(cell.source):
                    kernels += 1
                    self.assertRegex(said, r"(?m)^mine\.cuh in the place of ", "it was not judged")
                    right = cell.id.endswith("-answer")
                    self.assertEqual(" failed: " in said, not right, said)
                for start, kind in SHOWN.items():
                    if re.search(rf"(?m)^{start}\(", cell.source):
                        self.assertIn(kind, shown)
                if re.match(r"(ladder|traffic)\(", cell.source):  # where there is no GPU, that is what they say
                    self.assertTrue(said.strip())
        self.assertGreaterEqual(kernels, 2)


for path in sorted(FOLDER.glob("*.ipynb")):
    setattr(Executed, f"test_{path.stem}", lambda self, name=path.name: self.check(name))


if __name__ == "__main__":
    unittest.main()
