"""The benchmark lab in Chromium: what it plots is what the CSV says, in every metric and on every axis, and its table, its link
and its keys agree with the chart."""
from __future__ import annotations

import re
from urllib.parse import parse_qsl

from tools import results, rungs
from tools.paths import ROOT
from tools.tests.site import browser
from tools.tests.site.lab import EVERYBODY, GPU, HEADLINE, LabCase, ROWS, SWEEP
from tools.tests.site.ladder import STAGES

VARIANT = next(row["stage"] for row in ROWS if "[" in row["stage"] and row["gpu"] == GPU)


def number(row: dict, name: str) -> float | None:
    return float(row[name]) if row[name] else None


def expected(row: dict, metric: str) -> tuple:
    """Value, low and high of a row, from the definitions in docs/results/README.md."""
    value = number(row, {"ms": "ms_median"}.get(metric, metric))
    median, p20, p80 = (number(row, f"ms_{name}") for name in ("median", "p20", "p80"))
    if metric == "ms":
        return (None,) * 3 if row["kind"] == "ceiling" else (value, p20, p80)
    if metric.startswith("vs_"):
        return value, number(row, f"{metric}_lo"), number(row, f"{metric}_hi")
    if metric == "flop_per_clk_sm" or value is None:
        return value, None, None
    return value, value * median / p80, value * median / p20


METRICS = ("tflops", "ms", "pct_ceiling", "vs_previous", "vs_fa2", "flop_per_clk_sm")


TRAFFIC = [row for path in sorted((ROOT / "docs" / "results").glob("*_traffic.csv")) for row in results.traffic(path)]


def recorded_bytes() -> list[str]:
    return sorted({row.metric for row in TRAFFIC if "bytes" in row.metric and "peak" not in row.metric})


class Lab(LabCase):
    # ---- what is plotted -------------------------------------------------------------------------------------------

    def test_the_first_view_is_the_climb(self) -> None:
        seen = self.look()
        bars = [mark for mark in seen["marks"] if mark["from"] is not None]
        here = [row for row in ROWS if (row["gpu"], row["regime"]) == (GPU, "turns") and self.is_headline(row)]
        measured = sorted((row["stage"] for row in here if "[" not in row["stage"] and row["kind"] == "stage"), key=STAGES.index)
        line = [rung.name for rung, _ in rungs.by_line() if rung.name in measured]
        self.assertGreater(len(line), 5)
        self.assertEqual([mark["stage"] for mark in bars], line)
        self.assertEqual(seen["names"], line)
        ceilings = {row["stage"] for row in here if row["kind"] == "ceiling"} - {"ex2", "l2_read", "dram_read", "wgmma_rs"}
        self.assertEqual({mark["stage"] for mark in seen["marks"]} - set(line), {"fa2", *ceilings})
        self.assertTrue(all("low" in mark for mark in bars))
        self.assertIn("batch 16, heads 16, N = 8192, d = 128, dense, in turns", seen["caption"])
        self.assertLess(self.run_script("return document.querySelector('.lab-chart').getBoundingClientRect().bottom"), 900)
        self.open_toggles()
        self.element(".lab-toggles button[aria-label='Rungs: all']").click()
        self.assertEqual(self.look()["names"], measured)

    @staticmethod
    def is_headline(row: dict) -> bool:
        names = ("batch", "heads", "n", "d", "causal", "dtype", "inputs", "problem")
        return [row[name] for name in names] == ["16", "16", "8192", "128", "0", "fp16", "normal", ""]

    @staticmethod
    def is_sweep(row: dict) -> bool:
        names = ("heads", "d", "causal", "dtype", "inputs", "problem")
        return int(row["batch"]) * int(row["n"]) == 16384 and [row[name] for name in names] == ["16", "128", "0", "fp16", "normal", ""]

    def check_marks(self, seen: dict, metric: str, regime: str, rows: list[dict]) -> None:
        wanted = {}
        for row in rows:
            value, low, high = expected(row, metric)
            if value is not None and row["regime"] == regime:
                wanted[row["stage"], row["n"]] = (value, low, high)
        self.assertEqual({(mark["stage"], mark["n"]) for mark in seen["marks"]}, set(wanted))
        self.assertEqual(len(seen["marks"]), len(wanted))
        for mark in seen["marks"]:
            got = [float(mark[name]) if name in mark else None for name in ("value", "low", "high")]
            for a, b in zip(got, wanted[mark["stage"], mark["n"]]):
                if b is None:
                    self.assertIsNone(a, mark)
                else:
                    self.assertAlmostEqual(a / b, 1, 12, mark)

    def check_table(self, seen: dict, family: bool) -> None:
        """As many figures as marks, and each to the digits it is written with."""
        cells = {}
        for line in seen["table"]:
            if family:
                cells |= {(line[0], head.removeprefix("N = ")): re.findall(r"[\d.]+", cell)
                          for head, cell in zip(seen["heads"][1:], line[1:]) if cell}
            else:
                cells[line[0], seen["marks"][0]["n"]] = [line[1], *re.findall(r"[\d.]+", line[2])]
        self.assertEqual(set(cells), {(mark["stage"], mark["n"]) for mark in seen["marks"]})
        for mark in seen["marks"]:
            written = cells[mark["stage"], mark["n"]]
            drawn = [float(mark[name]) for name in ("value", "low", "high") if name in mark]
            self.assertEqual(len(written), len(drawn), mark)
            for a, b in zip(written, drawn):
                self.assertLessEqual(abs(float(a) - b), 0.51 * 10 ** -len(a.partition(".")[2]), (mark, written))

    def test_every_metric_regime_and_axis_equals_the_csv(self) -> None:
        for shape, family in ((HEADLINE, False), (SWEEP, True)):
            rows = [row for row in ROWS if row["gpu"] == GPU and (self.is_sweep if family else self.is_headline)(row)]
            for metric in METRICS:
                for regime, y, x in (("turns", "linear", "log"), ("burst", "log", "linear")):
                    with self.subTest(shape=shape, metric=metric, regime=regime):
                        seen = self.turn_to(("shape", shape), ("metric", metric), ("regime", regime), ("y", y), ("x", x),
                                            *EVERYBODY)
                        self.assertEqual((seen["options"]["metric"], seen["options"]["y"]), (metric, y))
                        self.check_marks(seen, metric, regime, rows)
                        self.check_table(seen, family)
                        self.check_places(seen, family)

    def test_bars_start_at_nothing_or_at_what_they_are_compared_with(self) -> None:
        for metric, base in (("tflops", "0"), ("vs_fa2", "1")):
            seen = self.turn_to(("metric", metric), ("y", "linear"))
            start = next(float(tick["at"]) for tick in seen["ticks"] if tick["tick"] == base)
            for mark in seen["marks"]:
                if mark["from"] is not None:
                    self.assertAlmostEqual(mark["from" if float(mark["value"]) > float(base) else "x"], start, 1, mark)

    # ---- state -----------------------------------------------------------------------------------------------------

    def test_a_link_restores_what_it_was_copied_from(self) -> None:
        for name, value in (("metric", "vs_fa2"), ("shape", SWEEP), ("y", "log"), ("x", "linear")):
            self.choose(name, value)
        first, switched = self.look(), {STAGES[0], "cudnn_bhnd", VARIANT}
        for stage in switched:
            self.open_toggles()
            self.element(f".lab-toggles input[name='{stage}']").click()
        before, link = self.look(), self.browser.current_url
        self.assertEqual(set(before["on"]), set(first["on"]) ^ switched)
        shown = {"cudnn_bhnd"} & ({mark["stage"] for mark in first["marks"]} ^ {mark["stage"] for mark in before["marks"]})
        self.assertEqual(shown, {"cudnn_bhnd"})
        self.browser.get("about:blank")
        self.open(link)
        self.assertEqual(self.look(), before)

    def test_a_new_metric_brings_its_own_axis_and_the_default_leaves_the_address_short(self) -> None:
        self.choose("metric", "ms")
        self.assertEqual(self.look()["options"]["y"], "log")
        self.assertTrue(self.browser.current_url.endswith("#metric=ms"), self.browser.current_url)
        self.choose("metric", "tflops")
        self.assertEqual(self.look()["options"]["y"], "linear")

    def test_an_address_from_elsewhere_does_no_harm(self) -> None:
        first = self.look()
        for hash_ in ("#how-to-use-it", "#metric=constructor&shape=1&y=up&switched=1&hide=toString&constructor=1"):
            self.browser.get("about:blank")
            self.open((self.site / "docs" / "lab.html").as_uri() + hash_)
            self.assertEqual(self.look(), first)
        seen = self.show(("gpu", "My Card (mine.csv)"))
        self.assertIn("My Card (mine.csv): no such figure here.", seen["caption"])
        self.assertEqual(seen["marks"], first["marks"])

    def test_switches_by_the_group_and_an_empty_chart_says_so(self) -> None:
        for group in ("Rungs", "Other implementations"):
            self.open_toggles()
            self.element(f".lab-toggles button[aria-label='{group}: none']").click()
        for stage in ("cublas", "mma_sync", "wgmma"):
            self.element(f".lab-toggles input[name={stage}]").click()
        seen = self.look()
        self.assertEqual((seen["marks"], seen["table"], seen["on"]), ([], [], []))
        self.assertIn("Nothing", self.element(".lab-empty").text)
        self.element(".lab-toggles button[aria-label='Rungs: all']").click()
        self.assertEqual({mark["stage"] for mark in self.look()["marks"]} - set(STAGES), set())
        self.assertFalse(self.element(".lab-empty").is_displayed())

    # ---- reading it ------------------------------------------------------------------------------------------------

    def test_each_question_shows_who_it_is_about(self) -> None:
        parts = {rung.name: rung.part or "ladder" for rung in rungs.known()}
        questions = [tuple(question) for question in self.run_script("return lab.PRESETS")]
        self.assertGreater(len(questions), 4)
        for words, address in questions:
            with self.subTest(words):
                self.run_script("[...document.querySelectorAll('.lab-presets button')].find(b => b.textContent === arguments[0]).click()", words)
                seen, asked = self.look(), dict(parse_qsl(address, separator="&"))
                stages = [mark["stage"] for mark in seen["marks"]]
                self.assertGreater(len(stages), 1)
                only = asked.get("only", "").split(";")
                for stage in stages if "only" in asked else ():
                    self.assertTrue(any(stage == name or parts.get(stage) == name or name.endswith("*") and stage.startswith(name[:-1]) for name in only), stage)
                if "both" in asked.values():
                    self.assertEqual({stages.count(stage) for stage in stages}, {2})
                    self.assertEqual(len({mark["label"].split(": ")[0] for mark in seen["marks"]}), len(stages))

    def test_alone_can_be_chosen_and_stands_beside_in_turns(self) -> None:
        self.choose("regime", "both")
        seen = self.look()
        known = {row["stage"]: float(row["tflops"]) for row in ROWS if self.is_headline(row) and row["regime"] == "alone" and row["gpu"] == GPU}
        shown = {mark["stage"]: float(mark["value"]) for mark in seen["marks"] if ", alone, N" in mark["label"]}
        self.assertGreater(len(shown), 2)
        for stage, value in shown.items():
            self.assertAlmostEqual(value, known[stage], 3)
        self.assertIn("in turns and alone", seen["caption"])

    def test_the_mouse_reads_a_value(self) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for state in ((), (("shape", SWEEP),)):
            stage = next(mark["stage"] for mark in self.turn_to(*state)["marks"] if mark["kind"] == "stage")
            mark = self.element(f".mark[data-stage='{stage}']")
            ActionChains(self.browser).move_to_element(mark.find_element("css selector", ".bar, .dot")).perform()
            there = self.run_script(  # a marker may lie over another
                "const middle = (mark) => { const box = mark.querySelector('.bar, .dot').getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; };"
                "const [x, y] = middle(arguments[0]), marks = [...document.querySelectorAll('.mark')].filter((mark) => mark.querySelector('.bar, .dot'));"
                "return marks.filter((mark) => Math.hypot(middle(mark)[0] - x, middle(mark)[1] - y) < 5).map((mark) => mark.getAttribute('aria-label'));", mark)
            self.assertIn(self.element(".lab-tip").text, there)
            self.assertRegex(self.element(".lab-tip").text, r"^\w+, .*: [\d.]+ TFLOPS, the middle 60 % of the rounds [\d.]+ to [\d.]+")

    def test_the_keyboard_reaches_every_value(self) -> None:
        from selenium.webdriver.common.keys import Keys

        def focused() -> str:  # whose value the tip says
            return self.run_script("const mark = document.activeElement, tip = document.querySelector('.lab-tip');"
                                   "return mark.matches('.mark') && !tip.hidden && tip.textContent === mark.ariaLabel "
                                   "? `${mark.dataset.stage} ${mark.dataset.n}` : ''")

        def press(key: str) -> str:
            self.browser.switch_to.active_element.send_keys(key)
            return focused()

        marks = [f"{mark['stage']} {mark['n']}" for mark in self.look()["marks"]]
        self.element(".lab-controls select[name=y]").send_keys(Keys.TAB)
        walk = [focused()]
        while len(walk) < len(marks):
            walk.append(press(Keys.ARROW_DOWN))
        self.assertEqual(walk, marks)
        self.assertEqual(press(Keys.ARROW_DOWN), marks[-1])
        self.assertEqual([press(Keys.ARROW_UP), press(Keys.HOME), press(Keys.END)], [marks[-2], marks[0], marks[-1]])
        self.assertEqual(press(Keys.TAB), "")
        self.assertTrue(self.run_script("return !!document.activeElement.closest('.lab-toggles')"))

        marks = self.turn_to(("shape", SWEEP))["marks"]
        line = [mark for mark in marks if mark["stage"] == marks[0]["stage"]]
        self.element(".lab-controls select[name=x]").send_keys(Keys.TAB)
        self.assertEqual([focused(), *(press(Keys.ARROW_RIGHT) for _ in line)],
                         [f"{mark['stage']} {mark['n']}" for mark in [*line, line[-1]]])
        above = sorted((mark for mark in marks if mark["n"] == line[-1]["n"] and float(mark["value"]) > float(line[-1]["value"])),
                       key=lambda mark: float(mark["value"]))
        self.assertGreater(len(above), 3)
        self.assertEqual([press(Keys.ARROW_UP) for _ in above], [f"{mark['stage']} {mark['n']}" for mark in above])

    def test_a_phone(self) -> None:
        self.screen(browser.PHONE)
        longest = max(recorded_bytes(), key=len)
        self.assertGreater(len(longest), 40)
        for state in ((), (("shape", SWEEP), *EVERYBODY), (("metric", "ms"), *EVERYBODY), (("metric", longest),),
                      (("metric", longest), ("shape", "8192,128"))):
            ticks = [float(tick["at"]) for tick in self.show(*state)["ticks"] if "tick" in tick]
            self.assertGreater(max(ticks) - min(ticks), 100)  # long names leave room for the bars
            sizes = self.run_script(
                "const chart = document.querySelector('.lab-chart'), box = chart.getBoundingClientRect();"
                "const inside = [...chart.querySelectorAll('text')].map((text) => text.getBoundingClientRect());"
                "return [document.documentElement.scrollWidth, box.width / chart.viewBox.baseVal.width,"
                " Math.min(...inside.map((text) => text.left)), Math.max(...inside.map((text) => text.right)),"
                " Math.min(...inside.map((text) => text.top)) - box.top, box.bottom - Math.max(...inside.map((text) => text.bottom))]")
            self.assertLessEqual(sizes[0], 380)
            self.assertAlmostEqual(sizes[1], 1, 2)  # 12 px are 12 px
            self.assertGreaterEqual(sizes[2], 0)
            self.assertLessEqual(sizes[3], 380, state)
            self.assertGreaterEqual(min(sizes[4:]), -1, state)

    def test_rungs_differ_in_lightness_and_stand_out_from_the_page(self) -> None:
        script = """
            const pen = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
            const light = (color) => {
              pen.fillStyle = color;
              pen.fillRect(0, 0, 1, 1);
              const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
              const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((c) => linear(c / 255));
              return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const strokes = [...document.querySelectorAll('.series.stage .line')].map((line) => getComputedStyle(line).stroke);
            return [getComputedStyle(document.body).backgroundColor, ...strokes].map(light);
        """
        for scheme in ("light", "dark"):
            features = [{"name": "prefers-color-scheme", "value": scheme}]
            self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
            self.show(("shape", SWEEP))
            paper, *tones = self.run_script(script)
            self.assertGreater(len(tones), 5)
            self.assertEqual(tones, sorted(tones))
            for a, b in zip(tones, tones[1:]):
                self.assertGreater((b + 0.05) / (a + 0.05), 1.02)
            for tone in tones:
                self.assertGreaterEqual((max(tone, paper) + 0.05) / (min(tone, paper) + 0.05), 3, scheme)
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

    def test_without_a_script_there_is_a_table(self) -> None:
        page = (self.site / "docs" / "lab.html").read_text(encoding="utf-8")
        rows = sorted(re.findall(r'<tr><th scope="row">([^<]+)</th><td>\w+</td><td>([^<]+)</td>', page))
        headline = sorted((row["stage"], f"{float(row['tflops']):.4g}") for row in ROWS
                          if self.is_headline(row) and (row["regime"], row["source"]) == ("turns", "measured")
                          and (row["kind"] != "stage" or "[" not in row["stage"]))
        self.assertEqual(rows, headline)

    # ---- bytes -----------------------------------------------------------------------------------------------------

    @staticmethod
    def bytes_of(metric: str, gpu: str) -> dict[tuple[str, str], float]:
        """By stage and N, of a dense problem; of several shapes the one with most heads."""
        rows = [row for row in TRAFFIC if (row.metric, row.gpu or row.source, row.causal) == (metric, gpu, False)]
        rows.sort(key=lambda row: row.batch * row.heads)
        return {(row.stage, str(row.n)): row.value if metric.startswith("cuda.") else row.per_head for row in rows}

    def test_recorded_bytes_equal_the_csv(self) -> None:
        """All of them on a linear axis and in the table; on a logarithmic one, which has no 0, all but the zeros."""
        for metric in recorded_bytes():
            for gpu in sorted({row.gpu or row.source for row in TRAFFIC if row.metric == metric}):
                for axis in ("log", "linear"):
                    with self.subTest(metric=metric, gpu=gpu, axis=axis):
                        wanted = self.bytes_of(metric, gpu)
                        seen = self.turn_to(("metric", metric), ("gpu", gpu), ("shape", "all,128"), ("y", axis), *EVERYBODY)
                        drawn = {key: value for key, value in wanted.items() if value or axis == "linear"}
                        self.assertEqual({(mark["stage"], mark["n"]): float(mark["value"]) for mark in seen["marks"]}, drawn)
                        self.check_places(seen, True)
                        cells = {(line[0], head.removeprefix("N = ")): cell for line in seen["table"]
                                 for head, cell in zip(seen["heads"][1:], line[1:]) if cell}
                        self.assertEqual(set(cells), set(wanted))
                        self.assertEqual({key for key, cell in cells.items() if cell == "0 B"},
                                         {key for key, value in wanted.items() if value == 0})
                        without = len(wanted) - len(drawn)
                        said = re.search(r"0 is not on a logarithmic axis: .* (\d+) values? of", seen["caption"])
                        self.assertEqual(int(said[1]) if said else 0, without)

    def test_of_what_was_counted_bytes_are_offered(self) -> None:
        options = self.run_script("return [...document.querySelectorAll('select[name=metric] option')].map((option) => option.value)")
        self.assertEqual(options, [*METRICS, *recorded_bytes()])


if __name__ == "__main__":
    browser.main()
