"""The plots, run on invented figures of an invented ladder (fixtures/results.csv: gpu is "test") and on broken files."""
from __future__ import annotations

import contextlib
import importlib
import io
import re
import shutil
import unittest
from pathlib import Path
from xml.etree import ElementTree

from tools import results
from tools.plots import bytes_over_n, figure, over_n, roofline, tflops_per_rung
from tools.tests.scratch import FIXTURE, Scratch

FIGURES = ("tflops_per_rung", "time_over_n")


class Drawing(Scratch):
    def test_every_figure_is_drawn_twice_alike_and_they_show_what_they_should(self) -> None:
        texts = {}
        for name in FIGURES:
            first, second = self.folder / f"{name}.svg", self.folder / f"{name}-2.svg"
            self.run_anew("plots", name, FIXTURE, "-o", first, ends=0)
            self.plot(name, FIXTURE, "-o", second)
            self.assertEqual(first.read_bytes(), second.read_bytes())
            root = ElementTree.parse(first).getroot()
            self.assertTrue(root.tag.endswith("svg"))
            texts[name] = " ".join(root.itertext())
        for words in ("06_chrome", "fa2", "210", "mma.sync alone", "400", "wgmma alone", "500", "turns", "test, batch 16"):
            self.assertIn(words, texts["tflops_per_rung"])
        for words in ("00 to 07", "batch x N = 16384", "milliseconds per head", "cudnn"):
            self.assertIn(words, texts["time_over_n"])
        self.assertNotIn("64x128, 4 warps", texts["tflops_per_rung"])  # an ablation is no rung

    def test_rates_of_several_runs_are_told_apart(self) -> None:
        path = self.folder / FIXTURE.name
        results.write_table(path, [row | {"commit": "0123456789ab" if row["stage"] == "06_chrome" else "b" * 12}
                                   for row in results.table(FIXTURE)])
        for name in ("tflops_per_rung", "time_over_n"):
            texts = []
            for file in (FIXTURE, path):
                svg = self.folder / f"{name}.svg"
                self.plot(name, file, "-o", svg)
                texts.append(" ".join(ElementTree.parse(svg).getroot().itertext()))
            self.assertNotIn("letter", texts[0], name)
            self.assertIn("2 runs, a letter each", texts[1], name)
            self.assertRegex(texts[1], r"(190|06_chrome|to 07) ab?\b", name)

    def test_rows_of_other_inputs_are_not_mixed_in(self) -> None:
        path = self.folder / FIXTURE.name
        rows = [line for line in FIXTURE.read_text().splitlines() if ",normal," in line]
        path.write_text(FIXTURE.read_text() + "\n".join(row.replace(",normal,", ",peaky,") for row in rows) + "\n")
        for name in FIGURES:
            module = importlib.import_module(f"tools.plots.{name}")
            self.assertEqual(*(figure.points_of(module, csv) for csv in (FIXTURE, path)), name)

    def test_a_figure_knows_its_data(self) -> None:
        path = self.folder / "a.svg"
        self.plot("tflops_per_rung", FIXTURE, "-o", path)
        points = figure.points_of(tflops_per_rung, FIXTURE)
        self.assertTrue(figure.is_current(path, points))
        points["rungs"][0][-1] += 0.1
        self.assertFalse(figure.is_current(path, points))

    def test_a_shape_that_was_not_measured_is_named(self) -> None:
        with self.assertRaisesRegex(results.ResultsError, "N = 777(.|\n)*N = 16384"):  # and what there is
            results.select(FIXTURE, results.read(FIXTURE), results.Selection(n=777))

    def test_unwritable_output(self) -> None:
        said = self.plot("tflops_per_rung", FIXTURE, "-o", "/proc/none/a.svg", ends=2)
        self.assertIn("/proc/none", said)

    def test_no_label_leaves_its_figure(self) -> None:
        from matplotlib import pyplot

        for name in FIGURES:
            module = importlib.import_module(f"tools.plots.{name}")
            points = figure.points_of(module, FIXTURE)
            drawn = figure.make(points, module.render, module.heights(points))
            drawn.canvas.draw()
            labels = [label for axes in drawn.axes for label in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label,
                                                                  *(axes.get_legend().get_texts() if axes.get_legend() else ()))]
            for label in (*labels, drawn._suptitle):
                if not label or not label.get_text():
                    continue
                box = label.get_window_extent()
                with self.subTest(figure=name, label=label.get_text()):
                    self.assertGreaterEqual(min(box.x0, box.y0), -1)
                    self.assertLessEqual(box.x1, drawn.bbox.width + 1)
                    self.assertLessEqual(box.y1, drawn.bbox.height + 1)
                    self.assertGreaterEqual(label.get_fontsize(), figure.TYPE)  # 9 pixels on a phone
            pyplot.close(drawn)


class Regimes(Scratch):
    def test_in_turns_and_alone(self) -> None:
        path, drawn = self.folder / "results.csv", self.folder / "a.svg"
        said = self.plot("regimes", FIXTURE, "-o", drawn, ends=77)
        self.assertIn("ladder bench --alone", said)
        lines = FIXTURE.read_text().splitlines()
        at_the_headline = [line for line in lines[1:] if ",turns," in line and ",16,16,8192,128,0," in line and '"' not in line]
        path.write_text("\n".join([*lines, *(line.replace(",turns,", ",alone,") for line in at_the_headline[2:4])]) + "\n")
        self.plot("regimes", path, "-o", drawn)
        text = " ".join(ElementTree.parse(drawn).getroot().itertext())
        names = [line.split(",")[0] for line in at_the_headline]
        for name in names[2:4]:
            self.assertIn(name, text)
        self.assertNotIn(names[1], text)


class DarkPages(Scratch):
    def test_no_ink_stays_dark(self) -> None:
        """Every colour that is written into a figure and would not stand out on a dark page has another one there."""
        points = figure.points_of(tflops_per_rung, FIXTURE)
        figure.draw(points, tflops_per_rung.render, self.folder / "a.svg", tflops_per_rung.heights(points))
        text = (self.folder / "a.svg").read_text()
        rules, body = text.split("</style>", 1)
        self.assertIn("prefers-color-scheme: dark", rules)

        def light(colour: str) -> float:
            parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
            parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
            return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

        paper = light(figure.ON_DARK[figure.PAPER])
        for colour in {*re.findall(r"#[0-9a-f]{6}", body), *figure.COLORS} - {figure.PAPER, figure.GRID}:
            contrast = (light(figure.ON_DARK.get(colour, colour)) + 0.05) / (paper + 0.05)
            self.assertGreater(contrast, 4.5, colour)


TRAFFIC_FIGURES = ("bytes_over_n", "memory_over_n", "roofline")


def traffic_rows(measured: bool = True) -> list[str]:
    """An invented GPU_traffic.csv: DRAM sees what must be carried, L2 the model's bytes."""
    rows = []
    for stage, batch, heads, tile in (("00_stone", 1, 2, None), ("01_wood", 2, 16, 64), ("02_brick", 2, 16, 64),
                                      ("06_chrome", 2, 16, 128)):
        def row(n: int, metric: str, per_head: float, source: str, batch: int = batch, heads: int = heads) -> str:
            gpu = "test" if source == "measured" else ""
            return f"{stage},{gpu},{batch},{heads},{n},128,0,{metric},{per_head * batch * heads:.12g},{source},synthetic,2000-01-01"

        for n in (512, 4096, 8192):
            carried = 8 * n * 128 + 4 * n * n if tile is None else 4 * n * 128 + 4 * n * n * 128 // tile
            rows += [row(n, "model.io_bytes", carried, "model", 1, 1), row(n, "emulator.gmem_bytes_read", carried, "emulator", 1, 1)]
            if measured:
                scores = 4 * n * n if tile is None else 0
                rows += [row(n, metric, value, "measured") for metric, value in (
                    ("dram__bytes_read.sum", 6 * n * 128 + scores), ("dram__bytes_write.sum", 2 * n * 128 + scores),
                    ("lts__t_bytes.sum", carried))]
                rows += [row(n, metric, value / batch / heads, "measured") for metric, value in (
                    ("dram__bytes.sum.peak_sustained", 1000), ("dram__cycles_elapsed.avg.per_second", 3e9),
                    ("lts__t_bytes.sum.peak_sustained", 5000), ("lts__cycles_elapsed.avg.per_second", 1.5e9))]
                rows.append(row(n, "cuda.memory_used_bytes", 8 * n * 128 + scores, "measured", 1, 2))
    return rows


class TrafficFigures(Scratch):
    def write(self, rows: list[str], name: str = "test_traffic.csv") -> Path:
        path = self.folder / name
        path.write_text("\n".join([",".join(results.columns("traffic")), *rows, ""]))
        shutil.copy(FIXTURE, self.folder / "test.csv")  # the rates beside the bytes
        return path

    def test_they_show_what_they_should(self) -> None:
        path, texts = self.write(traffic_rows()), {}
        for name in TRAFFIC_FIGURES:
            file = self.folder / f"{name}.svg"
            self.plot(name, path, "-o", file)
            texts[name] = " ".join(ElementTree.parse(file).getroot().itertext())
        for words in ("01 02", "06_chrome", "4nd + 4n²d/128", "8nd + 4n²", "dram__bytes_read.sum", "lts__t_bytes.sum"):
            self.assertIn(words, texts["bytes_over_n"])
        for words in ("linear", "logarithmic", "cuda.memory_used_bytes", "01 02 06"):
            self.assertIn(words, texts["memory_over_n"])
        for words in ("3.00 TB/s", "7.50 TB/s", "mma_sync 400", "dram__bytes_read.sum"):
            self.assertIn(words, texts["roofline"])

    def test_what_is_reached_stands_beside_what_the_wires_could_carry(self) -> None:
        path = self.write(traffic_rows())
        rows = (self.folder / "test.csv").read_text()
        ceiling = next(line for line in rows.splitlines() if line.startswith("mma_sync,"))
        (self.folder / "test.csv").write_text(f"{rows.rstrip()}\n{ceiling.replace('mma_sync,', 'l2_read,').replace(',400,', ',5.25,')}\n")
        points = figure.points_of(roofline, path)
        self.assertEqual([panel["reached"] for panel in points["panels"]], [None, 5.25])
        self.plot("roofline", path, "-o", self.folder / "a.svg")
        self.assertIn("5.25 TB/s reached", (self.folder / "a.svg").read_text())

    def test_the_name_of_a_line_stays_short(self) -> None:
        order = ["00_stone", "p01_clay", "p02_mud", "01_wood", "02_brick", "03_iron"]
        for names, wanted in ((order[4:5], "02_brick"), (order[:3], "00 p01 p02"), (order[1:5], "p01 to 02"),
                              (order[:4] + order[5:], "00 to 01, 03")):
            self.assertEqual(over_n.together(names, order), wanted)

    def test_values_are_per_head(self) -> None:
        path = self.write(traffic_rows())
        points = figure.points_of(bytes_over_n, path)
        lines = {name: dict(map(tuple, line)) for name, _, line in points["panels"][1]["lines"]}
        self.assertAlmostEqual(lines["06_chrome"][4096] / lines["4nd + 4n²d/128"][4096], 1, places=5)
        self.assertAlmostEqual(lines["01 02"][512] / (4 * 512 * 128 + 4 * 512 * 512 * 2), 1, places=5)
        roof = figure.points_of(roofline, path)
        self.assertIn(["01_wood", 4096.0, 30.0], roof["panels"][0]["rungs"])  # 4 n^2 d operations over 8 n d bytes
        self.assertEqual(over_n.table(points)[0][1][:2], ["N =", "512"])
        self.assertEqual([rows[0][0] for _, _, rows in over_n.table(points)], ["00_stone", "00_stone"])
        self.assertEqual([over_n.plain(value) for value in (0.0, 0.5, 1234.5, 123456.7)], ["0", "0.5", "1234", "123,457"])
        for metric, value in (("lts__t_bytes.sum", 2.0), ("lts__t_sector_hit_rate.pct", 64.0), ("sm__warps_active.avg.per_cycle_active", 64.0)):
            self.assertEqual(results.Row(2, {"batch": 2, "heads": 16, "metric": metric, "value": 64.0}).per_head, value)

    def test_nothing_is_drawn_before_it_is_measured(self) -> None:
        path = self.write(traffic_rows(measured=False))
        for name in TRAFFIC_FIGURES:
            for csv in (path, self.folder / "none_traffic.csv"):
                said = self.plot(name, csv, "-o", self.folder / "a.svg", ends=77)
                self.assertIn("make profile", said)
            self.assertFalse((self.folder / "a.svg").exists())

    def test_broken_rows(self) -> None:
        rows = traffic_rows()
        for broken, words in (
            ([rows[0]] * 2, "traffic.csv:3: repeats line 2"),
            ([rows[0].replace("model,", "guess,")], "source is 'guess'"),
            ([rows[2].replace(",test,", ",,")], "a GPU stands in measured rows alone"),
            ([rows[2].replace(",512,", ",many,")], "n is 'many'"),
            ([rows[2].replace(",0,dram", ",2,dram")], "causal is '2'"),
            ([re.sub(r"sum,[^,]+", "sum,nan", rows[2])], "value is 'nan'"),
            ([rows[2].replace("sum,", "sum,-")], "nothing counted is below 0"),
            ([row.replace("io_bytes,", "io_bytes,1") for row in rows], "are those of no tile"),
            ([rows[2] + ",more"], "13 fields"),
            ([rows[2].rpartition(",")[0]], "11 fields")):
            said = self.plot("bytes_over_n", self.write(broken), "-o", self.folder / "a.svg", ends=2)
            self.assertIn(words, said)
        path = self.write(rows)
        path.write_text(path.read_text().replace("metric", "counter", 1))
        self.assertIn("no column metric", self.plot("roofline", path, "-o", self.folder / "a.svg", ends=2))


class OtherLadders(Scratch):
    """Files that know other rungs than the ladder does."""

    def test_rows_of_a_rung_that_is_gone_are_left_out_with_a_note(self) -> None:
        path = self.csv(("02_brick,stage", "02_gone,stage"))
        said = self.plot("tflops_per_rung", path, "-o", self.folder / "a.svg")
        self.assertEqual(said, f"{path}: left out, for the ladder has no such rung: 02_gone\n")
        text = " ".join(ElementTree.parse(self.folder / "a.svg").getroot().itertext())
        self.assertNotIn("02_gone", text)
        self.assertIn("03_iron", text)

    def test_a_ratio_over_another_rung_is_left_out_with_a_note(self) -> None:
        head, *lines = FIXTURE.read_text().splitlines()
        names = [line.split(",")[0] for line in lines]
        at = head.split(",").index("vs_previous")

        def with_previous(line: str, before: str) -> str:
            cells = line.split(",")
            return ",".join([*cells[:at], before, *cells[at:]])

        path = self.folder / "results.csv"
        plain = [(name, line) for name, line in zip(names, lines) if '"' not in line]
        path.write_text("\n".join([with_previous(head, "previous"), *(with_previous(line, {"02_brick": "00_stone", "03_iron": "02_brick"}.get(name, ""))
                                                                     for name, line in plain)]) + "\n")
        with contextlib.redirect_stderr(io.StringIO()) as said:
            over = {row.stage: row.vs_previous for row in results.read(path)}
            results.tell()
        self.assertIn("than they start from now, so without vs_previous: rows of 02_brick\n", said.getvalue())
        self.assertIsNone(over["02_brick"])
        self.assertIsNotNone(over["03_iron"])

    def test_a_rung_without_rows_is_no_bar(self) -> None:
        self.assertEqual(self.plot("tflops_per_rung", FIXTURE, "-o", self.folder / "a.svg"), "")
        self.assertNotIn("p01_clay", (self.folder / "a.svg").read_text())

    def test_without_the_program_there_is_a_way_out(self) -> None:
        run = self.run_anew("plots", "time_over_n", FIXTURE, "-o", self.folder / "a.svg", LADDER=str(self.folder / "none"),
                            ends=2)
        self.assertIn("./ladder build ladder", run.stderr)
        self.assertNotIn("Traceback", run.stderr)


class BrokenCsv(Scratch):
    def refuses(self, path: Path, *words: str) -> None:
        said = self.plot("tflops_per_rung", path, "-o", self.folder / "a.svg", ends=2)
        for word in words:
            self.assertIn(word, said)

    def test_missing_empty_and_binary(self) -> None:
        self.refuses(self.folder / "none.csv", "none.csv: No such file")
        empty = self.folder / "empty.csv"
        empty.touch()
        self.refuses(empty, "empty.csv:1: no column stage")
        empty.write_text(",".join(results.columns("results")) + "\n")
        self.refuses(empty, "a header and no rows")
        empty.write_bytes(b"\xff\xfe\x00")
        self.refuses(empty, "empty.csv: not a text file in UTF-8")
        good = FIXTURE.read_bytes()
        empty.write_bytes(good.replace(b"06_chrome", b"06_batch\xe9d", 1))
        self.refuses(empty, "empty.csv: not a text file in UTF-8")
        empty.write_bytes(good.replace(b"06_chrome", b"06_batch\0d", 1))
        self.refuses(empty, "empty.csv:8: stage is")
        self.refuses(self.folder, "Is a directory")

    def test_columns(self) -> None:
        self.refuses(self.csv(("tflops,", "speed,")), "broken.csv:1: no column tflops")
        self.refuses(self.csv(("date\n", "date,mood\n")), "broken.csv:1: unknown or repeated column mood")

    def test_cells(self) -> None:
        self.refuses(self.csv(("01_wood,stage,test", "01_wood,stage,test,more")), "broken.csv:3: 38 fields")
        self.refuses(self.csv(("01_wood,stage", "01_wood,rung")), "broken.csv:3: kind is 'rung'", "stage', 'peer', 'ceiling")
        self.refuses(self.csv(("01_wood,stage,test", "01_wood,stage,")), "broken.csv:3: gpu is ''")
        self.refuses(self.csv(("16,16,8192,128,0", "16,16,many,128,0")), "broken.csv:2: n is 'many'")
        self.refuses(self.csv(("16,16,8192,128,0", "16,16,8192,128,2")), "broken.csv:2: causal is '2'")
        self.refuses(self.csv(("10,9.9,10.2,2,", "10,9.9,10.2,nan,")), "broken.csv:2: tflops is 'nan'")
        self.refuses(self.csv(("10,9.9,10.2,2,", "10,9.9,10.2,1_0,")), "broken.csv:2: tflops is '1_0'")
        self.refuses(self.csv(("10,9.9,10.2,2,", "10,9.9,10.2,1e999,")), "broken.csv:2: tflops is '1e999'")
        self.refuses(self.csv(("10,9.9,10.2,2,", "10,9.9,10.2,-2,")), "broken.csv:2: tflops is -2")
        self.refuses(self.csv(("10,9.9,10.2,2,", "10,11,10.2,2,")), "broken.csv:2: ms_p20 <= ms_median")

    def test_an_unclosed_quote(self) -> None:
        self.refuses(self.csv(('4 warps]"', "4 warps]")), "broken.csv:53: in it or below, no table")
        self.refuses(self.csv(("01_wood,stage", '01"base",stage')), "broken.csv:3: stage is '01\"base\"'")

    def test_figures_that_cannot_be_true(self) -> None:
        self.refuses(self.csv(("10,9.9,10.2,190,", "10,9.9,10.2,501,")), "broken.csv:8: 06_chrome claims 501 TFLOPS",
                     "above this card's ceiling of 500")
        self.refuses(self.csv(("10.2,190,,38.0", "10.2,190,,101")), "broken.csv:8: pct_ceiling is 101; no rate is above its ceiling")
        self.refuses(self.csv(("02_brick,stage", "01_wood,stage")), "broken.csv:4: repeats line 3")

    def test_which_ceiling_binds_whom(self) -> None:
        def row(stage: str, kind: str, pct: float | None = None, sm: int | None = 90, gpu: str = "card", dtype: str = "fp16") -> results.Row:
            return results.Row(2, {"stage": stage, "kind": kind, "pct_ceiling": pct, "sm": sm, "gpu": gpu, "dtype": dtype})

        mma_sync, wgmma, cublas = (row(name, "ceiling") for name in ("mma_sync", "wgmma", "cublas"))
        for bound, binding in ((row("02", "stage", 50.0), {"mma_sync", "wgmma"}), (row("20", "stage"), {"wgmma"}),
                               (row("fa3", "peer"), {"wgmma"}), (row("fa2", "peer", sm=80), {"mma_sync", "wgmma"}),
                               (row("fa2", "peer", sm=None), {"wgmma"}), (row("fa2", "peer", gpu="other"), set()),
                               (row("40", "stage", 50.0, dtype="e4m3"), set())):
            self.assertEqual({each.stage for each in (mma_sync, wgmma, cublas) if results.bounds(each, bound)}, binding)


if __name__ == "__main__":
    unittest.main()
