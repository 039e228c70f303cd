"""The README's table, the chapters' measured blocks and the numbers in prose, on an invented ladder and invented results."""
from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path
from unittest import mock

from tools import results, rungs
from tools.site import blocks, chapters, prose, readme, sketch
from tools.tests import fake_ladder
from tools.tests.scratch import BUILT, FIXTURE, ROOT, Scratch


def faults(text: str) -> list[str]:
    """What a chapter lacks of its form: the idea drawn, its source named, and each answer folded behind its question."""
    parts = {line: part for line, part in re.findall(r"^## ([^\n]*)\n(.*?)(?=^## |\Z)", text, re.M | re.S)}
    head, happened, breaks = text.partition("\n## ")[0], parts.get("What happened", ""), parts.get("What breaks if you remove this line", "")
    rows = [line for line in breaks.splitlines() if line.startswith("|")][2:]
    return [fault for fault, wrong in (
        ("no drawing", not re.search(r"^!\[[^\]]{20,}\]\(drawing\.svg\)$", head, re.M)),
        ("no prediction", "**What we predict.**" not in head),
        ("no source", "**Where it comes from.**" not in head),
        ("what happened is not folded", not re.match(r"\s*<details><summary>First predict", happened)),
        ("an answer in sight", not rows or not all(re.search(r"\| <details><summary>answer</summary>.+</details> \|$", row) for row in rows)),
        ("no answer to go on", not re.search(r"^\*\*To go on\.\*\*.*?<details><summary>Answer</summary>\n\n.+?</details>", breaks, re.M | re.S)),
        ("a fold left open", text.count("<details>") != text.count("</details>"))) if wrong]


class ReadmeTable(Scratch):
    """readme.py against an invented program."""

    def setUp(self) -> None:
        super().setUp()
        self.readme = self.folder / "README.md"
        self.readme.write_text(f"before\n{readme.BEGIN}\nold\n{readme.END}\nafter\n")
        self.program = fake_ladder.write(self.folder / "ladder")
        for rung in fake_ladder.invented():
            kernel = self.folder / rung["directory"] / "kernel.cuh"
            kernel.parent.mkdir(parents=True)
            kernel.write_text(f"{rung['word']}\n")

    def renew(self, *arguments: object, csv: Path = ROOT / "none.csv",
              ends: int | None = None) -> subprocess.CompletedProcess:
        return self.run_anew("site.readme", "--page", self.readme, "--csv", csv, *arguments,
                             ends=ends, LADDER=str(self.program),
                             LADDER_ROOT=str(self.folder))

    def test_without_measurements_there_are_no_ratios(self) -> None:
        self.assertEqual(self.renew().returncode, 0)
        text = self.readme.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n"))
        for rung in fake_ladder.invented():
            self.assertIn(f"| [{rung['stage']}]({rung['directory']}/README.md) | {'branch | ' * (rung['role'] == 'branch')}{'1' if rung['previous'] else ''} | {rung['idea']} |\n", text)
        # The line is in sight, and what hangs under one of its rungs in a fold.
        places = [text.index(words) for words in (f"## {readme.TOP}", "[00_stone]", "[01_wood]", "## The part side", "<details><summary>Under 00_stone: p01_clay</summary>", "[p01_clay]")]
        self.assertEqual(places, sorted(places))
        self.assertEqual(self.renew("--check").returncode, 0)

    def test_measured_figures(self) -> None:
        self.renew(csv=FIXTURE, ends=0)
        text = self.readme.read_text()
        self.assertIn("| +5.6 % [", text)
        self.assertNotIn("190", text)  # a rate of one run, in a table of several
        self.assertRegex(text, r"README.md\) \| branch \|  \| not measured yet \| ")  # of the rung that was not measured
        self.assertRegex(text, r"Others on the same card, over FlashAttention-2, which reached \d+ TFLOPS: ")
        self.assertIn("test, 2000-01-01, batch 16", text)
        self.assertIn("docs/figures/results-tflops-per-rung.svg", text)

    def test_a_stale_table_and_a_missing_figure_fail(self) -> None:
        self.renew()
        self.readme.write_text(self.readme.read_text().replace("[00_stone]", "[00_pebble]"))
        run = self.renew("--check", ends=1)
        self.assertIn("make plots", run.stderr)
        self.assertIn("[00_stone]", run.stderr)
        self.renew(csv=FIXTURE)
        run = self.renew("--check", csv=FIXTURE, ends=1)
        self.assertIn("results-tflops-per-rung.svg is missing or older than", run.stderr)

    def test_bad_input(self) -> None:
        for text in ("no markers\n", f"{readme.BEGIN}\nold\n", f"{readme.BEGIN}\n{readme.END}\n" * 2, f"{readme.END}\n{readme.BEGIN}\n"):
            self.readme.write_text(text)
            self.assertIn("expected one line", self.renew(ends=2).stderr)
        self.program.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
        run = self.renew(ends=2)
        self.assertNotIn("Traceback", run.stderr)


class Chapters(unittest.TestCase):
    """The measured block, on rows of its own."""

    def block(self, stage: str, *rows: tuple[str, float, bool]) -> str:
        empty = dict.fromkeys((f"vs_{other}{end}" for other in ("previous", "fa2") for end in ("", "_lo", "_hi")))
        common = {**empty, "kind": "stage", "gpu": "a card", "batch": 16, "heads": 16, "n": 8192, "d": 128, "verdict": "",
                  "regime": "turns", "inputs": "normal", "dtype": "fp16", "problem": "", "ms_median": 10.0, "pct_ceiling": 1.0,
                  "registers": 1, "spill_bytes": 0, "source": "measured", "commit": "one run", "date": "2000-01-01"}
        made = [results.Row(i, {**common, "stage": name, "tflops": tflops, "causal": causal, **dict(other)})
                for i, (name, tflops, causal, *other) in enumerate(rows)]
        return chapters.block(rungs.named(stage), made, {})

    def test_a_rung_without_a_row_says_so(self) -> None:
        said = self.block("p01_clay", ("00_stone", 1.5, False))
        self.assertIn("Not measured yet: [h200.csv](../../docs/results/h200.csv)", said)
        self.assertIn("(../docs/results/h200.csv)", self.block("01_wood", ("01_wood", 1.5, False)))
        with mock.patch.object(results, "recorded", return_value=[mock.Mock(stage="p01_clay")]):
            self.assertIn("another card: [h100.csv](../../docs/results/h100.csv)", self.block("p01_clay", ("00_stone", 1.5, False)))

    def test_a_rung_of_another_formula_shows_the_rows_of_its_own_problem(self) -> None:
        small = (("batch", 2), ("heads", 2), ("n", 64))
        own, masked = ("problem", "other b=2 h=2 n=64 d=128"), ("problem", "other b=2 h=2 n=64 d=128 causal")
        said = self.block("02_brick", ("01_wood", 1.5, False), ("02_brick", 7.0, False, *small, own), ("02_brick", 6.0, True, *small, masked))
        self.assertIn("| | 02_brick |", said)  # beside 01_wood, which solves another problem, it says nothing
        self.assertIn("| TFLOPS, in turns | 7.0 |", said)
        self.assertIn("| TFLOPS, causal, in turns | 6.0 |", said)

    def test_the_nearest_measured_rung_below_stands_beside_it(self) -> None:
        self.assertIn("| | 00_stone | 02_brick (this rung) |", self.block("02_brick", ("00_stone", 1.5, False), ("02_brick", 20, False)))
        self.assertIn("| | 00_stone | 01_wood (this rung) |",
                      self.block("01_wood", ("00_stone", 1.5, False), ("p01_clay", 2, False), ("01_wood", 20, False)))

    def test_causal_rows_add_lines_and_no_others(self) -> None:
        dense = [("00_stone", 1.5, False), ("01_wood", 20.0, False)]
        self.assertNotIn("causal, in turns", self.block("01_wood", *dense))
        self.assertIn("| TFLOPS, causal, in turns |  | 19.0 |", self.block("01_wood", *dense, ("01_wood", 19.0, True)))

    def test_a_rate_of_another_run_says_so(self) -> None:
        said = self.block("01_wood", ("00_stone", 1.5, False, ("commit", "before")), ("01_wood", 20.0, False))
        self.assertIn("| TFLOPS, in turns |  | 20.0 |", said)

    def test_a_gain_alone_stands_beside_those_of_the_other_regimes(self) -> None:
        gain = {"vs_previous": 1.25, "vs_previous_lo": 1.2, "vs_previous_hi": 1.3, "verdict": "faster"}
        dense = [("00_stone", 1.5, False), ("01_wood", 20.0, False)]
        alone = ("regime", "alone")
        said = self.block("01_wood", *dense, ("00_stone", 1.4, False, alone, ("commit", "before"), *gain.items()), ("01_wood", 10.0, False, alone, *gain.items()))
        self.assertIn("| TFLOPS, alone |  | 10.0 |", said)
        self.assertIn("| against the rung before, alone |  | 1.250 [1.200, 1.300] faster |", said)
        self.assertNotIn("before, alone", self.block("01_wood", *dense, ("01_wood", 10.0, False, alone)))

    def test_the_counters_that_moved_are_shown(self) -> None:
        names = {label: metric if isinstance(metric, str) else metric[0] for label, metric, _ in chapters.COUNTERS}
        before = {part: 100.0 for _, metric, _ in chapters.COUNTERS for part in ([metric] if isinstance(metric, str) else metric)}
        self.assertEqual(chapters.moved(before, before), [])
        self.assertEqual(chapters.moved(before, {**before, names["L2 bytes, GB"]: 104.0}), [])
        self.assertEqual(chapters.moved(before, {**before, names["L2 bytes, GB"]: 106.0}), ["L2 bytes, GB"])
        self.assertEqual(chapters.moved(before, {name: 50.0 for name in before})[-1:], ["warp instructions, millions"])
        self.assertEqual(chapters.moved(dict.fromkeys(before, 0.0), {**dict.fromkeys(before, 0.0), names["tensor cores active"]: 0.05}), [])


class Prose(Scratch):
    """Numbers in chapters, on the invented results."""

    def setUp(self) -> None:
        super().setUp()
        shutil.copy(FIXTURE, self.folder / "h200.csv")
        (self.folder / "h200_counters.csv").write_text(
            "stage,kernel,gpu,batch,heads,n,d,metric,unit,value,commit,date\n" + "".join(
                f"{stage},{kernel},test,2,16,4096,128,{metric},inst,{value},x,2000-01-01\n" for stage, kernel, metric, value in (
                    ("02_brick", '"flash_attention<64, 128, 4>"', "sass.MOV", 3), ("02_brick", '"flash_attention<64, 128, 4>"', "sass.IMAD", 4),
                    ("02_brick", '"flash_attention<64, 32, 2>"', "sass.MOV", 5))))
        (self.folder / "mutants.csv").write_text("rung,mutants,survived\n00_stone,10,0\n01_wood,20,3\n")
        patch = mock.patch.object(results, "RESULTS", self.folder)
        patch.start()
        self.addCleanup(patch.stop)
        for cached in (results.recorded, prose._counters, prose._groups):
            cached.cache_clear()
            self.addCleanup(cached.cache_clear)

    def test_a_number_is_computed_and_formatted(self) -> None:
        rate = prose.h200("06").tflops
        self.assertEqual(rate, 190)
        for name in ("6", "06", "chrome", "06_chrome"):
            self.assertEqual(prose.number(f"h200({name!r}).tflops / 2:.1f"), "95.0")
        self.assertEqual(prose.h200("06[64x128, 4 warps]").stage, "06_chrome[64x128, 4 warps]")
        self.assertEqual(prose.h200("fa2").kind, "peer")
        self.assertEqual(prose.h200("06", n=512, batch=32).n, 512)
        self.assertEqual(prose.sass("02", "MOV IMAD"), 7)
        self.assertEqual(prose.sass("02", "MOV", "64, 32, 2"), 5)
        self.assertEqual(prose.number("mutants('mutants') - mutants('survived'):d"), "27")

    def test_a_ceiling_is_found_by_its_name_though_a_rung_has_it_as_its_word(self) -> None:
        (self.folder / "h200.csv").write_text(FIXTURE.read_text().replace("\nwgmma,ceiling,", "\nbrick,ceiling,"))
        self.assertEqual((prose.h200("brick").kind, prose.h200("02").stage), ("ceiling", "02_brick"))

    def test_what_is_not_there_is_refused(self) -> None:
        for text, said in (("h200('99').tflops:.1f", "no row of 99"), ("h200('06', n=77).tflops:.1f", "N = 77"),
                           ("h200('06').speed:.1f", "speed"), ("ncu('02', 'nothing'):.0f", "no nothing of 02"),
                           ("ncu('99', 'nothing'):.0f", "no row of 99"), ("mutants('nothing'):d", "no column nothing"),
                           ("h200('fa2').registers:d", "NoneType"), ("1 +:d", "invalid syntax")):
            with self.subTest(text), self.assertRaisesRegex(results.ResultsError, said):
                prose.number(text)

    TABLE = """<!-- table N
512: n=512, batch=32
8192:
|
06: {h200('06', ROW).tflops:.0f}
over FA2: {100 * h200('06', ROW).vs_fa2:.0f} %
-->
"""

    def test_numbers_and_tables_beside_their_formulas_are_renewed(self) -> None:
        spec = self.TABLE.replace("8192:\n", "8192: n=8192\n")
        at = [prose.h200("06", n=512, batch=32), prose.h200("06")]
        rows = "".join(f"| {row.n} | {row.tflops:.0f} | {100 * row.vs_fa2:.0f} % |\n" for row in at)
        text = f"Has <!--=h200('06').tflops:.0f-->1<!--/--> TFLOPS.\n\n{spec}| old |\n<!-- /table -->\n"
        wanted = (f"Has <!--=h200('06').tflops:.0f-->190<!--/--> TFLOPS.\n\n{spec}| N | 06 | over FA2 |\n| --- | ---: | ---: |\n"
                  f"{rows}<!-- /table -->\n")
        self.assertEqual(prose.renewed(text, "page.md"), wanted)
        self.assertEqual(prose.renewed(wanted, "page.md"), wanted)
        for broken, said in (("<!--=h200('77').tflops:.0f-->1<!--/-->", "page.md: .*no row of 77"), (f"{self.TABLE}<!-- /table -->", "page.md"),
                             ("<!-- table N\n512:\n-->\n<!-- /table -->", r"no line \|")):
            with self.assertRaisesRegex(results.ResultsError, said):
                prose.renewed(broken, "page.md")

    def test_blocks_are_made_anew(self) -> None:
        for rung, line in (("02_brick", "  int shift = 1;\n"), ("01_wood", "  int shift = 0;\n")):
            (self.folder / rung).mkdir()
            (self.folder / rung / "kernel.cuh").write_text(f"// {rung}\n\nvoid tile(int i) {{\n{line}}}\n")
        table = self.folder / "a.csv"
        table.write_text('what,figure\n"one | two",3\n')
        text = "".join(f"<!-- {words} -->\nold\n<!-- /{words.split()[0]} -->\n" for words in ("region 02 tile", "diff 02 shift", f"csv {table}"))
        with mock.patch.object(rungs, "root", lambda: self.folder):
            new = blocks.renewed(text, "page.md")
            self.assertEqual(blocks.renewed(new, "page.md"), new)
            for broken in ("region 02 none", "diff 02 none", "csv"):
                with self.assertRaisesRegex(results.ResultsError, f"page.md: {broken}"):
                    blocks.renewed(f"<!-- {broken} -->\n<!-- /{broken.split()[0]} -->\n", "page.md")
        self.assertNotIn("old", new)
        for said in ("```cpp\nvoid tile(int i) {\n  int shift = 1;\n}\n```", "```diff\n- int shift = 0;\n+ int shift = 1;\n```", "| one \\| two | 3 |"):
            self.assertIn(said, new)

    def test_what_goes_together_and_what_does_not(self) -> None:
        file = self.folder / "combinations.csv"
        file.write_text("kind,what,problem,d,bf16,fp16,bf16_lacks,fp16_lacks\n"
                        "forward,causal,n=1,64,02_brick,02_brick,,\nforward,causal,n=1,128,01_wood,02_brick,,\n"
                        "forward,sink,n=1,64,,,sink,sink\nforward,sink,n=1,128,,01_wood,sink,\n")
        with mock.patch.object(blocks, "COMBINATIONS", file):
            self.assertEqual(blocks.combinations("forward").splitlines(), [
                "|  | d = 64 | d = 128 |", "| --- | --- | --- |",
                "| causal | [02](../02_brick/README.md) | [01](../01_wood/README.md), f16: [02](../02_brick/README.md) |",
                "| sink | – | –, f16: [01](../01_wood/README.md) |", "", "- *sink*: d = 64, 128 in bf16; 64 in f16"])
            for broken, said in (('combinations "same bits"', "no rows"), ("combinations", "combinations: ")):
                with self.assertRaisesRegex(results.ResultsError, said):
                    blocks.renewed(f"<!-- {broken} -->\n<!-- /combinations -->\n", "page.md")

    def test_a_long_change_is_shown_from_the_line_with_the_words_on(self) -> None:
        for rung, lines in (("02_brick", [f"int line_{i};" for i in range(14)]), ("01_wood", [])):
            (self.folder / rung).mkdir()
            (self.folder / rung / "kernel.cuh").write_text("\n".join([f"// {rung}", "", *lines, "void tile();", ""]))
        with mock.patch.object(rungs, "root", lambda: self.folder):
            shown = blocks.diff("02", "line_9").splitlines()[1:-1]
            self.assertEqual(shown, [*(f"+ int line_{i};" for i in range(9, 14)), "  ... 9 lines more"])
            self.assertEqual(blocks.diff("02").splitlines()[1], "+ int line_0;")

    def rounds(self, *groups: tuple) -> None:
        """h200_rounds_*.csv, one for each commit: of each group the contestant, its commit, heat, round, milliseconds and MHz, and what differs from the rest of them."""
        columns = ("contestant", "commit", "heat", "round", "ms", "clock_mhz")
        common = {"kind": "stage", "gpu": "test", "batch": 16, "heads": 16, "n": 8192, "d": 128, "causal": 0, "inputs": "normal", "regime": "turns"}
        rows = [{**common, **dict(zip(columns, group)), **(group[6] if len(group) > 6 else {})} for group in groups]
        for commit in {row["commit"] for row in rows}:
            lines = [",".join(rows[0])] + [",".join(str(row[name]) for name in rows[0]) for row in rows if row["commit"] == commit]
            (self.folder / f"h200_rounds_{commit}.csv").write_text("\n".join(lines) + "\n")
        prose._groups.cache_clear()

    def test_two_contestants_of_a_heat(self) -> None:
        self.rounds(*(("02_brick", "a", 1, at, ms, 1500) for at, ms in ((1, 10), (2, 20), (3, 10))),
                    *(("01_wood", "a", 1, at, ms, 1000) for at, ms in ((1, 11), (2, 24), (3, 13))),
                    ("chrome", "a", 1, 1, 1, 1700, {"kind": "ceiling"}), ("01_wood", "a", 2, 1, 99, 1000), ("01_wood", "a", 1, 1, 99, 1000, {"causal": 1}))
        wood, flops = prose.beside("02", "01"), 4 * 16 * 16 * 8192**2 * 128
        self.assertAlmostEqual(wood.ratio, 1.2)  # in rounds: 1.1, 1.2 and 1.3, where the medians of the times have 13 / 10
        self.assertAlmostEqual(wood.least, 1.1)
        self.assertAlmostEqual(wood.most, 1.3)
        self.assertEqual((wood.ms, wood.clock_mhz), (13, 1000))
        self.assertAlmostEqual(wood.tflops, flops / 13e9)
        self.assertAlmostEqual(wood.flop_per_clk_sm, flops / (13e-3 * 1000e6) / 132)
        self.assertEqual(prose.number("beside('02', 'chrome').clock_mhz:.0f"), "1700")
        for rate in ("tflops", "flop_per_clk_sm"):
            with self.assertRaisesRegex(results.ResultsError, "chrome is a ceiling"):
                prose.number(f"beside('02', 'chrome').{rate}:.0f")

    def test_half_the_flops_under_a_mask(self) -> None:
        self.rounds(*((name, "a", 1, 1, 10, 1500, {"causal": mask}) for name in ("01_wood", "02_brick") for mask in (0, 1)))
        self.assertEqual(prose.beside("02", "01", causal=True).tflops, prose.beside("02", "01").tflops / 2)

    def test_contestants_of_no_heat_and_of_several(self) -> None:
        self.rounds(("02_brick", "a", 1, 1, 10, 1500), ("01_wood", "a", 1, 1, 11, 1500), ("02_brick", "b", 1, 1, 10, 1500), ("01_wood", "b", 1, 1, 12, 1500),
                    ("00_stone", "b", 2, 1, 50, 1500), ("fa2", "b", 1, 2, 10, 1500))
        for text, said in (("beside('02', '00').ratio:.1f", "no row of 02 beside 00"), ("beside('02', '01').ratio:.1f", "several rows of 02 beside 01"),
                           ("beside('02', '01', n=512).ratio:.1f", "N = 512"), ("beside('02', '01', commit='c').ratio:.1f", "commit c"),
                           ("beside('02', 'fa2').ratio:.1f", "no row of a common round")):
            with self.subTest(text), self.assertRaisesRegex(results.ResultsError, said):
                prose.number(text)
        self.assertEqual([prose.number(f"beside('02', '01', commit='{commit}').ratio:.1f") for commit in "ab"], ["1.1", "1.2"])

    def test_two_runs_that_are_told_apart_by_nothing_are_refused(self) -> None:
        self.rounds(("02_brick", "a", 1, 1, 10, 1500), ("01_wood", "a", 1, 1, 11, 1500), ("02_brick", "a", 1, 1, 10, 1500))
        with self.assertRaisesRegex(results.ResultsError, "h200_rounds_a.csv:4: a second group of 02_brick in heat 1, round 1, commit a"):
            prose.number("beside('02', '01').ratio:.1f")

    def test_a_rung_that_was_not_measured_yet(self) -> None:
        for text in ("h200('p01').tflops:.1f", "ncu('03', 'tensor_busy'):.1f"):
            with self.assertRaises(prose.NoRows):
                prose.number(text)
        with self.assertRaises(results.ResultsError) as raised:
            prose.number("h200('99').tflops:.1f")
        self.assertNotIsInstance(raised.exception, results.NotMeasured)
        text = "worth <!--=h200('p01').tflops:.1f-->12.5<!--/--> TFLOPS\n"
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(prose.renewed(text, "x"), text)
        self.assertIn("x: not measured yet: h200('p01')", said.getvalue())


class Drawings(Scratch):
    """What a drawing is made of, and its file."""

    def sketch(self) -> sketch.Sketch:
        return sketch.Sketch("A box", "One box that holds a word.")

    def test_words_that_cannot_be_read_are_refused(self) -> None:
        for draw_it, said in ((lambda s: s.box(0, 0, 30, 16, "data", "too long"), "does not fit"),
                              (lambda s: s.box(0, 0, 100, 16, "data", "two\nlines"), "does not fit"),
                              (lambda s: s.box(300, 0, 100, 16), "leaves the drawing"),
                              (lambda s: s.text(350, 20, "outside"), "leaves the drawing"),
                              (lambda s: (s.text(0, 20, "one"), s.text(10, 22, "two")), "'two' lies over 'one'"),
                              (lambda s: (s.text(30, 12, "across"), s.box(0, 0, 40, 16)), "'across' stands across the edge of a box"),
                              (lambda s: (s.box(0, 0, 40, 16), s.text(30, 12, "across")), "'across' stands across the edge of a box"),
                              (lambda s: s.box(0, 0, 100, 16, "blue"), "no kind of box blue")):
            with self.subTest(said), self.assertRaisesRegex(ValueError, said):
                draw_it(self.sketch())
        fits = self.sketch()
        fits.box(0, 0, 60, 16, "waste", "fits")
        fits.text(0, 40, "one")
        fits.text(0, 54, "two")
        fits.box(70, 0, 100, 60, "empty")
        fits.text(80, 20, "inside")

    def test_hatching_stays_in_its_box(self) -> None:
        points = [tuple(map(float, point)) for point in re.findall(r"[ML](\S+?) ([\d.]+)", sketch.hatching(10, 20, 33, 12))]
        self.assertGreater(len(points), 10)
        for x, y in points:
            self.assertTrue(10 <= x <= 43 and 20 <= y <= 32, (x, y))

    def test_a_file_carries_its_words_and_its_colours(self) -> None:
        made = self.sketch()
        made.box(0, 0, 40, 16, "copy", "<b>")
        svg = made.svg("style")
        self.assertRegex(svg, r'^<svg [^>]*class="sketch" viewBox="0 0 368 19" width="552" height="28.5" role="img"><title>A box</title><desc>One box[^<]*</desc>')
        self.assertIn("&lt;b&gt;", svg)
        self.assertIn('class="ground"', svg)

    def test_a_stale_drawing_fails(self) -> None:
        folder = self.folder / "99_rung"
        folder.mkdir()
        source = folder / "drawing.py"
        source.write_text("from tools.site.sketch import Sketch\nDRAWING = Sketch('A box', 'One box.')\nDRAWING.box(0, 0, 40, 16)\n")
        (folder / "README.md").write_text("# A chapter\n\n![](drawing.svg)\n")
        stale = lambda run: re.findall(r"(\w+\.\w+) is stale", run.stderr)
        self.assertEqual(stale(self.run_anew("site.draw", source, "--check", ends=1)), ["drawing.svg", "README.md"])
        self.run_anew("site.draw", source, ends=0)
        self.assertIn("![A box](drawing.svg)", (folder / "README.md").read_text())
        self.run_anew("site.draw", source, "--check", ends=0)
        source.write_text(source.read_text().replace("40", "41"))
        self.assertEqual(stale(self.run_anew("site.draw", source, "--check", ends=1)), ["drawing.svg"])


class RealChapters(unittest.TestCase):
    """Of the ladder as it is built."""

    def known(self) -> list[rungs.Rung]:
        built = {**os.environ, "LADDER": BUILT} if BUILT else {name: value for name, value in os.environ.items() if name != "LADDER"}
        self.addCleanup(rungs.known.cache_clear)
        with mock.patch.dict(os.environ, built, clear=True):
            rungs.known.cache_clear()
            return rungs.known()

    def test_a_chapter_shows_its_idea_and_folds_its_answers(self) -> None:
        seen = 0
        for rung in self.known():
            seen += 1
            text = (rung.path / "README.md").read_text(encoding="utf-8")
            with self.subTest(rung.name):
                self.assertEqual(faults(text), [])
                self.assertTrue((rung.path / "drawing.svg").is_file())
        self.assertGreater(seen, 20)

    def test_no_measured_number_of_a_chapter_is_typed(self) -> None:
        """What happened, in prose: decimals, percentages, multiples. A number of the write-up stands beside its name, one that we
        predicted beside "we said", and what a trial had beside that word."""
        files = [rung.path / "README.md" for rung in self.known()]
        for chapter in files:
            name = str(chapter.relative_to(ROOT))
            text = prose.INLINE.sub("computed", chapter.read_text(encoding="utf-8"))
            told = re.search(r"<!-- measured:end -->(.*?)(?=^## |\Z)", text, re.S | re.M)[1]
            for sentence in re.split(r"(?<=[.:;])\s", re.sub(r"`[^`]*`", "", told)):
                typed = re.findall(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?: %| times| million)|(?<![\w.])[-+]?\d+\.\d+", sentence)
                if typed and not re.search("write-up|A100|we (had )?said|trial", sentence):
                    self.fail(f"{name}: {typed} in '{sentence.strip()}' has no formula; see tools/site/prose.py")


if __name__ == "__main__":
    unittest.main()
