"""The benchmark lab as its tests see it: the page read out, and turned to other states by its address."""
from __future__ import annotations

import csv
import math
import shutil
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from tools.paths import ROOT
from tools.tests.site import browser
from tools.tests.site.ladder import is_there

# As the page has them: the card of the book's tables first.
RECORDED = sorted((path for path in (ROOT / "docs" / "results").glob("*.csv") if "_" not in path.stem and path.stem != "mutants"),
                  key=lambda path: (path.stem != "h200", path))
ROWS = [row for path in RECORDED for row in csv.DictReader(path.open(encoding="utf-8")) if is_there(row)]
GPU = ROWS[0]["gpu"]
HEADLINE, SWEEP = "8192,128,16,16", "all,128,16384,16"
EVERYBODY = [("show", stage) for stage in sorted({row["stage"] for row in ROWS})]

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


class LabCase(browser.BrowserCase):
    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.show()
        self.addCleanup(self.check_what_was_asked_for)

    def show(self, *state: tuple[str, str]) -> dict:
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

    def open_toggles(self) -> None:
        self.run_script("document.querySelector('.lab-toggles').open = true")

    def choose(self, name: str, value: str) -> None:
        self.element(f".lab-controls select[name={name}] option[value='{value}']").click()

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
