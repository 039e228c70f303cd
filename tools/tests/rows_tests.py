"""What a number on a page may be made of: rows of one run in one ratio, of commits that are in git, of the kernel that stands."""
from __future__ import annotations

import re
import unittest
from pathlib import Path

from tools import history, results
from tools.evidence import row_kernels
from tools.paths import ROOT
from tools.plots import engines, figure, power, roofline
from tools.site import prose


def pages() -> list[Path]:
    """All that may have a formula."""
    return [path for path in sorted(ROOT.rglob("*.md")) if not any(part.startswith((".", "build")) for part in path.relative_to(ROOT).parts)]


class Ratios(unittest.TestCase):
    def test_no_formula_divides_two_runs_or_two_heats(self) -> None:
        looked = 0
        for page in pages():
            for formula in prose.formulas(page.read_text(encoding="utf-8")):
                looked += 1
                with self.subTest(page=str(page.relative_to(ROOT)), formula=formula):
                    try:
                        self.assertEqual(prose.compares_two_runs(formula), "")
                    except prose.NoRows:
                        pass  # a rung that has not been timed yet
        self.assertGreater(looked, 1000)

    def test_what_compares_two_runs(self) -> None:
        one, other = "beside('31', 'fa3', n=1024, batch=16, commit='da150bdfe66d')", "beside('31', 'fa3', n=1024, batch=16, commit='41ed5b5e4dfa')"
        for formula in (f"{one}.tflops / {other}.tflops", f"100 - 100 * {one}.ms / {other}.ms", f"{one}.ratio - {other}.ratio",
                        "decoding('d02', 'b=1 kv=8 nk=8192') / decoding('d02', 'b=1 kv=8 nk=8192', beside='d03')",
                        "h200('34').tflops / h100('75', batch=4, n=4096, problem='backward b=4 h=16 n=4096 d=128').tflops"):
            self.assertIn("compares two runs", prose.compares_two_runs(formula), formula)
        self.assertIn("compares two heats", prose.compares_two_runs("h200('26').vs_fa2 / h200('fa3').vs_fa2"))
        for formula in (f"{one}.ratio", f"100 * {one}.ratio - 100", "h200('p10').ms_median / h200('p10', causal=True).ms_median",
                        f"apart({one}.ratio, {other}.ratio)", "h200('p02').tflops / h200('p01').tflops"):
            self.assertEqual(prose.compares_two_runs(formula), "", formula)

    def test_formulas_of_tables_are_found(self) -> None:
        page = "is <!--=h200('02').tflops:.2f-->1.25<!--/-->\n<!-- table N\n512: n=512\n1024: n=1024\n|\n34: {h200('34', ROW).tflops:.0f} of {h200('fa3', ROW).tflops:.0f}\n-->\n| N | 34 |\n<!-- /table -->\n"
        self.assertEqual(list(prose.formulas(page)), ["h200('02').tflops", "h200('34', n=512).tflops", "h200('fa3', n=512).tflops",
                                                      "h200('34', n=1024).tflops", "h200('fa3', n=1024).tflops"])

    def test_no_page_shows_a_rate_of_a_card_that_slowed_itself_down(self) -> None:
        marked = prose.slowed()
        known = {(card, commit, heat, selection.problem, name) for card in row_kernels.CARDS for (selection, commit, heat), contestants in prose._groups(card).items() for name in contestants}
        self.assertLessEqual(marked, known)
        heats = {row[:4] for row in marked}
        for page in pages():
            for formula in prose.formulas(page.read_text(encoding="utf-8")):
                if "pct_ceiling" in formula or "wgmma" in formula:
                    found = {(source.card, source.commit, source.heat, source.selection.problem) for source in prose.taken(formula)}
                    self.assertFalse(found & heats, f"{page}: {formula}")


class Commits(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if not history.is_here():
            raise unittest.SkipTest("the history is not here")

    def test_every_commit_that_a_row_names_is_in_git_or_said_not_to_be(self) -> None:
        listed = {row["named"]: row for row in results.table(row_kernels.COMMITS)}
        named: dict[str, set[str]] = {}
        for path in sorted(results.RESULTS.glob("*.csv")):
            if path == row_kernels.COMMITS:
                continue
            for row in results.table(path.name):
                if commit := row.get("commit"):
                    named.setdefault(commit, set()).add(path.name)
        for commit, files in named.items():
            with self.subTest(commit=commit, files=sorted(files)):
                self.assertNotEqual(history.has(commit), commit in listed, "in git, or in docs/results/row_commits.csv with what is there instead")
        self.assertLessEqual(listed.keys(), named.keys(), "no row names it any more")
        for commit, row in listed.items():
            with self.subTest(commit=commit):
                self.assertTrue(history.has(row["in_git"]) and row["why"])

    def test_the_kernel_of_a_row_stands_or_it_is_told_what_has_changed(self) -> None:
        told, timed = row_kernels.told(), row_kernels.timed()
        for row in timed:
            with self.subTest(rung=row.stage, commit=row.commit):
                how, gone = row_kernels.compared(row)
                self.assertNotEqual(how, row_kernels.UNKNOWN, "record its machine code, where nvcc is: python3 -m tools.evidence.row_kernels --record")
                self.assertEqual(how == row_kernels.OTHER_CODE, (row.stage, row.commit) in told, gone)
        self.assertLessEqual(told.keys(), {(row.stage, row.commit) for row in timed})

    def test_a_rung_that_has_rows_has_been_tried(self) -> None:
        timed = {row.stage for row in row_kernels.timed()}
        untried = {stage.parent.name for stage in ROOT.glob("*/*/stage.cu") if ".untried = true" in stage.read_text(encoding="utf-8")}
        self.assertEqual(timed & untried, set(), "no longer .untried, in stage.cu")

    def test_the_pages_show_how_kernels_stand(self) -> None:
        self.assertEqual([{**row, "how": row["how"].replace("text", "machine code")} for row in results.table(row_kernels.STANDS.name)],
                         [{**row, "how": row["how"].replace("text", "machine code")} for row in row_kernels.stands()], "python3 -m tools.evidence.row_kernels --record")


class Definitions(unittest.TestCase):
    """How the text of a kernel is held to another: history.py."""

    def test_comments_white_space_and_includes_play_no_part(self) -> None:
        self.assertEqual(history.bare('#include "common/gpu.cuh"\n// a\nint  a = 1;  /* b\n */ int b;\n'), "int a = 1; int b;")

    def test_a_header_is_split_into_what_it_defines(self) -> None:
        text = "#pragma once\nnamespace forward::words {\ntemplate <int N, class = Of<1>>\n__device__ float sum(const float (&x)[N]) { if (N) { return x[0]; } return 0; }\nstruct Ring { int at; };\nconstexpr int LIMIT = 8;\n#define TWICE(x) \\\n  (x + x)\n}\n"
        self.assertEqual([history.name_of(each) for each in history.definitions(text)], ["TWICE", "sum", "Ring", "LIMIT"])


class Figures(unittest.TestCase):
    def test_no_rate_of_the_card_is_without_its_run(self) -> None:
        csv = results.RESULTS / "h200.csv"
        for module, run in ((power, 2), (engines, 2)):
            points = figure.points_of(module, csv)
            self.assertIn("a letter each", points["runs"], module.NAME)
            self.assertEqual([row for row in points["rows"] if not row[run]], [], module.NAME)
            (title, _, rows), = module.table(points)
            self.assertIn("a letter each", title)
            self.assertEqual([row for row in rows if not any(re.search(r" [a-z]$", cell) for cell in row[:2])], [], module.NAME)
        csv = results.RESULTS / "h200_traffic.csv"
        points = figure.points_of(roofline, csv)
        self.assertEqual([name for name, run, _ in points["ceilings"] if not run], [])


if __name__ == "__main__":
    unittest.main()
