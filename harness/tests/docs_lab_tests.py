"""The benchmark lab in Chromium: what it plots is what the CSV says, in every metric and on every axis; its table, its link, its
download and its keys agree with the chart; a reader's own file is held to the rules of harness/plots/results.py."""
from __future__ import annotations

import csv
import io
import math
import re
import shutil
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlencode

import docs_browser
from docs_tests import ROOT, STAGES

sys.path.insert(0, str(ROOT / "harness" / "plots"))
import results  # noqa: E402
import traffic  # noqa: E402

RECORDED = sorted(path for path in (ROOT / "docs" / "results").glob("*.csv") if "_" not in path.stem)
ROWS = [row for path in RECORDED for row in csv.DictReader(path.open(encoding="utf-8"))]
GPU = ROWS[0]["gpu"]
HEADLINE, SWEEP = "8192,128,16,16", "all,128,16384,16"
EVERYBODY = [("show", stage) for stage in sorted({row["stage"] for row in ROWS})]

# As harness/evidence/traffic.py writes it. Invented.
TRAFFIC = ",".join(traffic.TRAFFIC.columns) + """
00_naive,card,1,2,512,128,0,dram__bytes_read.sum,3000000,measured,abc,2000-01-01
00_naive,card,1,2,1024,128,0,dram__bytes_read.sum,12000000,measured,abc,2000-01-01
00_naive,card,1,2,2048,128,0,dram__bytes_read.sum,48000000,measured,abc,2000-01-01
01_base,card,32,16,512,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
01_base,card,16,16,1024,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
01_base,card,8,16,2048,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
01_base,card,32,16,512,128,0,sm__cycles.sum,7,measured,abc,2000-01-01
00_naive,,1,1,512,128,0,emulator.gmem_bytes_read,5,emulator,abc,2000-01-01
00_naive,card,1,2,512,128,0,cuda.memory_used_bytes,7000000,measured,abc,2000-01-01
"""

# The page as a test sees it.
LOOK = """
const text = (node) => node.textContent, chart = document.querySelector('.lab-chart'), svg = chart.getBoundingClientRect();
const at = (mark) => {
  const shape = mark.querySelector('.bar, .dot, .reference').getBBox(), bar = mark.querySelector('.bar');
  const dot = mark.querySelector('.dot')?.getAttribute('transform').match(/([-.0-9e]+) ([-.0-9e]+)/);
  return { from: bar ? shape.x : null, x: dot ? +dot[1] : bar ? shape.x + shape.width : shape.x, y: dot ? +dot[2] : 0 };
};
return {
  marks: [...chart.querySelectorAll('.mark')].filter((mark) => mark.checkVisibility())
    .map((mark) => ({ ...mark.dataset, ...at(mark), label: mark.getAttribute('aria-label') })),
  ticks: [...chart.querySelectorAll('[data-at]')].map((tick) => ({ ...tick.dataset })),
  heads: [...document.querySelectorAll('.lab-table thead th')].map(text),
  table: [...document.querySelectorAll('.lab-table tbody tr')].map((row) => [...row.children].map(text)),
  caption: text(document.querySelector('.bench-lab figcaption')),
  names: [...chart.querySelectorAll('text.name')].map(text),
  options: Object.fromEntries([...document.querySelectorAll('.lab-controls select')].map((one) => [one.name, one.value])),
  hidden: [...document.querySelectorAll('.lab-controls label[hidden] select')].map((select) => select.name),
  on: [...document.querySelectorAll('.lab-toggles input:checked')].map((box) => box.name),
  status: text(document.querySelector('.lab-status')),
  address: decodeURIComponent(document.querySelector('.lab-download').href),
};
"""


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


class Lab(docs_browser.BrowserCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.show()
        self.addCleanup(self.check_what_was_asked_for)

    def show(self, *state: tuple[str, str], metrics: dict | None = None) -> dict:
        self.browser.get("about:blank")
        self.open((self.site / "docs" / "lab.html").as_uri() + (f"#{urlencode(state)}" if state else ""))
        return self.look()

    def look(self) -> dict:
        return self.run_script(LOOK)

    def turn_to(self, *state: tuple[str, str]) -> dict:
        """Another state in the address of the open page."""
        self.browser.execute_async_script(
            "addEventListener('hashchange', () => arguments[1](), { once: true }); location.hash = arguments[0]",
            urlencode(state) + f"&turn={next(self.turns)}")
        return self.look()

    turns = iter(range(10**6))

    def element(self, selector: str):
        return self.browser.find_element("css selector", selector)

    def choose(self, name: str, value: str) -> None:
        self.element(f".lab-controls select[name={name}] option[value='{value}']").click()

    # ---- what is plotted -------------------------------------------------------------------------------------------

    def test_the_first_view_is_the_climb(self) -> None:
        seen = self.look()
        bars = [mark for mark in seen["marks"] if mark["from"] is not None]
        rungs = [row["stage"] for row in ROWS if results.RUNG.fullmatch(row["stage"]) and row["n"] == "8192"
                 and (row["batch"], row["regime"], row["causal"], row["inputs"]) == ("16", "sustained", "0", "normal")]
        self.assertEqual([mark["stage"] for mark in bars], sorted(set(rungs)))
        self.assertEqual(seen["names"], sorted(set(rungs)))
        self.assertEqual({mark["stage"] for mark in seen["marks"]} - set(rungs), {"fa2", "mma_sync", "cublas"})
        self.assertTrue(all("low" in mark for mark in bars))
        self.assertIn("batch 16, heads 16, N = 8192, d = 128, dense, sustained", seen["caption"])
        self.assertLess(self.run_script("return document.querySelector('.lab-chart').getBoundingClientRect().bottom"), 900)

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

    def check_places(self, seen: dict, family: bool) -> None:
        """Each mark stands where the ticks of its axes say."""
        def along(value: str, name: str, log: bool) -> float:
            ticks = sorted((float(tick[name]), float(tick["at"])) for tick in seen["ticks"] if name in tick)
            (low, start), (high, end) = ticks[0], ticks[-1]
            of = math.log if log else float
            return start + (end - start) * (of(float(value)) - of(low)) / (of(high) - of(low))

        log = seen["options"]["y"] == "log"
        for mark in seen["marks"]:
            place = along(mark["value"], "tick", log)
            if mark["from"] is not None:  # the one end or the other
                self.assertLess(min(abs(mark["from"] - place), abs(mark["x"] - place)), 0.1, mark)
            else:
                self.assertAlmostEqual(place, mark["y" if family else "x"], 1, mark)
            if family:
                self.assertAlmostEqual(along(mark["n"], "n", seen["options"]["x"] == "log"), mark["x"], 1, mark)

    def test_every_metric_regime_and_axis_equals_the_csv(self) -> None:
        for shape, family in ((HEADLINE, False), (SWEEP, True)):
            rows = [row for row in ROWS if (row["causal"], row["inputs"], row["gpu"]) == ("0", "normal", GPU) and (
                int(row["batch"]) * int(row["n"]) == 16384 if family else (row["batch"], row["n"]) == ("16", "8192"))]
            for metric in METRICS:
                for regime, y, x in (("sustained", "linear", "log"), ("burst", "log", "linear")):
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
        for name, value in (("metric", "vs_fa2"), ("shape", SWEEP), ("regime", "burst"), ("y", "log"), ("x", "linear")):
            self.choose(name, value)
        for stage in ("00_naive", "cudnn_bhnd", "02_swizzle[64x32, 2 warps]"):
            self.element(f".lab-toggles input[name='{stage}']").click()
        before, link = self.look(), self.browser.current_url
        self.assertEqual({mark["stage"] for mark in before["marks"] if mark["kind"] == "peer"}, {"cudnn_bhnd"})
        self.assertNotIn("00_naive", before["on"])
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
            self.element(f".lab-toggles button[aria-label='{group}: none']").click()
        for stage in ("cublas", "mma_sync"):
            self.element(f".lab-toggles input[name={stage}]").click()
        seen = self.look()
        self.assertEqual((seen["marks"], seen["table"], seen["on"]), ([], [], []))
        self.assertIn("Nothing", self.element(".lab-empty").text)
        self.element(".lab-toggles button[aria-label='Rungs: all']").click()
        self.assertEqual({mark["stage"] for mark in self.look()["marks"]} - set(STAGES), set())
        self.assertFalse(self.element(".lab-empty").is_displayed())

    # ---- reading it ------------------------------------------------------------------------------------------------

    def test_the_mouse_reads_a_value(self) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        for state in ((), (("shape", SWEEP),)):
            self.turn_to(*state)
            mark = self.element(".mark[data-stage='03_kvpipe']")
            ActionChains(self.browser).move_to_element(mark.find_element("css selector", ".bar, .dot")).perform()
            self.assertEqual(self.element(".lab-tip").text, mark.get_attribute("aria-label"))
            self.assertRegex(self.element(".lab-tip").text,
                             r"03_kvpipe, .*: [\d.]+ TFLOPS, the middle 60 % of the rounds [\d.]+ to [\d.]+")

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

        lengths = sorted({mark["n"] for mark in self.turn_to(("shape", SWEEP))["marks"]}, key=int)
        self.element(".lab-controls select[name=x]").send_keys(Keys.TAB)
        self.assertEqual([focused(), *(press(Keys.ARROW_RIGHT) for _ in lengths)],
                         [f"00_naive {n}" for n in (*lengths, lengths[-1])])
        self.assertEqual([press(Keys.ARROW_UP) for _ in range(3)],
                         [f"{stage} {lengths[-1]}" for stage in ("01_base", "02_swizzle", "03_kvpipe")])

    def test_a_phone(self) -> None:
        self.screen(docs_browser.PHONE)
        for state in ((), (("shape", SWEEP), *EVERYBODY), (("metric", "ms"), *EVERYBODY)):
            self.show(*state)
            sizes = self.run_script(
                "const chart = document.querySelector('.lab-chart'), box = chart.getBoundingClientRect();"
                "const inside = [...chart.querySelectorAll('text')].map((text) => text.getBoundingClientRect());"
                "return [document.documentElement.scrollWidth, box.width / chart.viewBox.baseVal.width,"
                " Math.min(...inside.map((text) => text.left)), Math.max(...inside.map((text) => text.right))]")
            self.assertLessEqual(sizes[0], 380)
            self.assertAlmostEqual(sizes[1], 1, 2)  # 12 px are 12 px
            self.assertGreaterEqual(sizes[2], 0)
            self.assertLessEqual(sizes[3], 380)

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
            const lines = [...document.querySelectorAll('.series.stage .line')];
            return [getComputedStyle(document.body).backgroundColor, ...lines.map((line) => getComputedStyle(line).stroke)].map(light);
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
        rows = dict(re.findall(r'<tr><th scope="row">([^<]+)</th><td>\w+</td><td>([^<]+)</td>', page))
        headline = {row["stage"]: float(row["tflops"]) for row in ROWS
                    if (row["batch"], row["n"], row["regime"], row["causal"]) == ("16", "8192", "sustained", "0")
                    and (row["kind"] != "stage" or results.RUNG.fullmatch(row["stage"]))}
        self.assertEqual(set(rows), set(headline))
        for stage, tflops in headline.items():
            self.assertAlmostEqual(float(rows[stage]) / tflops, 1, 3)

    # ---- files -----------------------------------------------------------------------------------------------------

    def test_the_download_holds_the_visible_rows_as_they_were_recorded(self) -> None:
        lines = {line for path in RECORDED for line in path.read_text(encoding="utf-8").splitlines()}
        for state in ((), (("shape", SWEEP), ("regime", "burst"), *EVERYBODY)):
            seen = self.turn_to(*state)
            kind, _, text = unquote(seen["address"]).partition(",")
            self.assertEqual(kind, "data:text/csv;charset=utf-8")
            self.assertTrue(set(text.splitlines()) <= lines)
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual(sorted((row["stage"], row["n"]) for row in rows),
                             sorted((mark["stage"], mark["n"]) for mark in seen["marks"]))
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(self.folder)})
        self.element(".lab-download").click()
        file = self.folder / "flash-ladder-tflops.csv"
        self.wait_for(lambda: file.exists() and file.stat().st_size)
        self.assertEqual(file.read_text(encoding="utf-8"), text)
        results.read(file)

    def write(self, text: str | bytes, name: str = "mine.csv") -> Path:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def hand_over(self, text: str | bytes) -> dict:
        old = self.look()["status"]
        self.element(".lab-own input").send_keys(str(self.write(text)))
        self.wait_for(lambda: self.look()["status"] != old)
        return self.look()

    RECORDED_TEXT = RECORDED[0].read_text(encoding="utf-8")

    def test_an_own_file_stands_beside_the_recorded_ones(self) -> None:
        mine = self.RECORDED_TEXT.replace(GPU, "My <b>Card</b>").replace("measured,", "measured,abc", 1)
        alone = self.look()
        seen = self.hand_over(mine)
        self.assertIn("mine.csv: ", seen["status"])
        self.assertEqual(len(seen["marks"]), 2 * len(alone["marks"]))
        self.assertEqual({mark["gpu"] for mark in seen["marks"]}, {GPU, "My <b>Card</b> (mine.csv)"})
        self.assertEqual([line[1] for line in seen["table"]], [mark["gpu"] for mark in seen["marks"]])
        self.choose("gpu", "My <b>Card</b> (mine.csv)")
        self.assertEqual([(mark["stage"], mark["value"]) for mark in self.look()["marks"]],
                         [(mark["stage"], mark["value"]) for mark in alone["marks"]])
        self.element(".lab-status button").click()
        self.assertEqual(self.look()["marks"], alone["marks"])

    def test_a_file_of_the_same_card_is_told_apart_and_can_be_dropped(self) -> None:
        self.run_script("const files = new DataTransfer(); files.items.add(new File([arguments[0]], 'again.csv'));"
                        "document.querySelector('.lab-chart').dispatchEvent(new DragEvent('drop', "
                        "{ dataTransfer: files, bubbles: true, cancelable: true }))", self.RECORDED_TEXT)
        self.wait_for(lambda: "again.csv" in self.look()["status"])
        self.assertEqual({mark["gpu"] for mark in self.look()["marks"]}, {GPU, f"{GPU} (again.csv)"})

    def test_a_broken_file_is_refused_with_its_place_and_changes_nothing(self) -> None:
        before = self.look()["marks"]
        first = self.RECORDED_TEXT.splitlines()[2]
        for edited, said in (
                (first.replace("stage,", "rung,", 1), "mine.csv:3: kind is 'rung'; expected one of ceiling, peer, stage"),
                (first.replace(",16,16,8192,", ",16,16,many,"), "mine.csv:3: n is 'many', which is not an integer"),
                (first.replace(",70.2392,", ",999,"), "mine.csv:3: 01_base claims 999 TFLOPS, above this card's ceiling of ")):
            self.assertNotEqual(edited, first)
            self.assertIn(said, self.hand_over(self.RECORDED_TEXT.replace(first, edited))["status"])
        self.assertIn("no column kind", self.hand_over(self.RECORDED_TEXT.replace("kind", "sort", 1))["status"])
        self.assertIn("mine.csv: not a text file", self.hand_over(b"\xff\xfe\x00")["status"])
        self.assertEqual(self.look()["marks"], before)

    def test_bytes_a_head_over_n(self) -> None:
        """A traffic file: shapes that differ between rungs, compared by the head."""
        seen = self.hand_over(TRAFFIC)
        self.assertEqual(seen["options"]["metric"], "dram__bytes_read.sum")
        self.assertEqual(set(seen["hidden"]), {"regime", "inputs", "dtype"})
        seen = self.turn_to(("metric", "dram__bytes_read.sum"), ("shape", "all,128"))
        self.assertEqual({(mark["stage"], mark["n"]): float(mark["value"]) for mark in seen["marks"]},
                         {("00_naive", "512"): 3e6 / 2, ("00_naive", "1024"): 12e6 / 2, ("00_naive", "2048"): 48e6 / 2,
                          ("01_base", "512"): 64e6 / 512, ("01_base", "1024"): 64e6 / 256, ("01_base", "2048"): 64e6 / 128})
        self.assertEqual(seen["table"], [["00_naive", "1.500 MB", "6.000 MB", "24.00 MB"],
                                         ["01_base", "125.0 kB", "250.0 kB", "500.0 kB"]])
        self.assertEqual(seen["options"]["y"], "log")
        self.check_places(seen, True)
        seen = self.turn_to(("metric", "cuda.memory_used_bytes"), ("shape", "512,128"))
        self.assertEqual([float(mark["value"]) for mark in seen["marks"]], [7e6])  # not by the head: at one shape throughout
        self.assertEqual(unquote(seen["address"]).partition(",")[2],
                         f"{TRAFFIC.splitlines()[0]}\n{TRAFFIC.splitlines()[-1]}\n")
        seen = self.turn_to(("metric", "emulator.gmem_bytes_read"), ("gpu", "emulator (mine.csv)"))
        self.assertEqual([float(mark["value"]) for mark in seen["marks"]], [5])
        self.assertNotIn("sm__cycles.sum", [option.get_attribute("value") for option in
                                            self.browser.find_elements("css selector", "select[name=metric] option")])

    def test_recorded_bytes_equal_the_csv(self) -> None:
        for path in (ROOT / "docs" / "results").glob("*_traffic.csv"):
            rows = [row for row in traffic.read(path) if not row.causal]
            for metric in sorted({row.metric for row in rows if "bytes" in row.metric and "peak" not in row.metric}):
                for gpu in sorted({row.gpu or row.source for row in rows if row.metric == metric}):
                    with self.subTest(metric=metric, gpu=gpu):
                        wanted = {(row.stage, str(row.n)): row.value if metric.startswith("cuda.") else row.per_head
                                  for row in rows if row.metric == metric and (row.gpu or row.source) == gpu}
                        seen = self.turn_to(("metric", metric), ("gpu", gpu), ("shape", "all,128"))
                        self.assertEqual({(mark["stage"], mark["n"]): float(mark["value"]) for mark in seen["marks"]}, wanted)
                        self.assertEqual(sum(cell != "" for line in seen["table"] for cell in line[1:]), len(wanted))

    def check_judgement(self, texts: list[str], form: str) -> None:
        """The page's answer to each text: how many rows, or why none. The same as that of the plots, word for word."""
        page = (self.site / "docs" / "lab.html").read_text(encoding="utf-8")
        rules = re.search(r'<script type="application/json">(.*?)</script>', page, re.S)[1]
        answers = self.run_script(
            "const rules = JSON.parse(arguments[1]).forms[arguments[2]];"
            "return arguments[0].map((text) => { try { return String(lab.read('F', text, rules).length); }"
            " catch (error) { if (!(error instanceof lab.Refusal)) throw error; return error.message; } })", texts, rules, form)
        for text, answer in zip(texts, answers):
            path = self.write(text)
            try:
                wanted = str(len({"results": results, "traffic": traffic}[form].read(path)))
            except results.ResultsError as error:
                wanted = str(error).replace(str(path), "F")
            self.assertEqual(answer, wanted)
        self.assertGreater(len({answer for answer in answers if not answer.isdigit()}), 0.5 * len(texts))

    def test_the_page_and_the_plots_judge_results_alike(self) -> None:
        text = self.RECORDED_TEXT
        head, *lines = text.splitlines()
        plain = [line for line in lines if '"' not in line]
        number = next(i for i, line in enumerate(lines) if line.startswith("02_swizzle,"))
        ceiling = max(float(row["tflops"]) for row in ROWS if row["kind"] == "ceiling")

        def with_cell(column: str, cell: str) -> str:
            row = next(csv.reader([lines[number]]))
            row[results.RESULTS.columns.index(column)] = cell
            return "\n".join([head, *lines[:number], ",".join(row), *lines[number + 1:]]) + "\n"

        whole = [text, text.replace("\n", "\r\n"), "", "\n", head, head + "\n\n", head.replace("kind", "sort"), head + ",mood",
                 head + ",stage", '"' + head, text + lines[3] + "\n", "\n".join([head, *lines, lines[0] + ",more"]),
                 "\n".join([head, '01"base' + plain[1][7:]]), "\n".join([head, lines[0], '"open' + lines[1]]),
                 "\n".join(",".join(row[1:] + row[:1]) for row in csv.reader([head, *plain])),
                 "\n".join([head, *(line for line in plain if ",ceiling," not in line)]).replace("247.508", "9999")]
        cells = {
            "kind": ("rung", ""), "regime": ("cold",), "verdict": ("maybe", ""), "source": ("dream", "write-up"), "gpu": ("", " "),
            "n": ("many", "1.5", "", "1_0", " 8192 ", "+8192"), "causal": ("2", "TRUE", ""), "date": ("",), "sm": ("",),
            "tflops": ("nan", "inf", "-2", "0", "", "1e999", "0x10", ".5", "5.", "1e-7", str(ceiling + 1), str(ceiling)),
            "pct_ceiling": ("100.5", "100", "1234567"), "ms_median": ("35", "1e-5", "37", ""), "vs_previous": ("1", "9", ""),
            "vs_fa2_lo": ("123456.7",), "stage": ("01_base", "<b>", 'a"b'),
        }
        self.check_judgement([*whole, *(with_cell(column, cell) for column, given in cells.items() for cell in given)], "results")

    def test_the_page_and_the_plots_judge_traffic_alike(self) -> None:
        first = TRAFFIC.splitlines()[1]
        self.check_judgement([TRAFFIC, TRAFFIC + first, TRAFFIC.replace("value", "figure", 1), TRAFFIC.replace(",3000000,", ",-3,"),
                              TRAFFIC.replace(",3000000,", ",much,"), TRAFFIC.replace(",1,2,512,", ",0,2,512,"),
                              TRAFFIC.replace("00_naive,card,", "00_naive,,", 1), TRAFFIC.replace("00_naive,,", "00_naive,card,"), TRAFFIC.replace("measured", "guessed", 1),
                              TRAFFIC.replace(first, first.replace("00_naive", ""))], "traffic")


if __name__ == "__main__":
    docs_browser.main()
