"""What the browser tests share: the site built once and opened in Chromium from disk. A test file calls `main()`, which skips it
(exit code 77) without Chromium, its driver, Selenium, or what pages_tests.py needs. `python3 -m tools.tests.site.browser FOLDER` builds the site for
several files, which find it by LADDER_SITE; without that, each builds its own. Of what is alike, tests take a sample, and all of
it with LADDER_WHOLE."""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import unittest
from pathlib import Path

from tools.tests.site import pages_tests

PHONE = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}
DESK = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}

# Of every text that is shown: its size on the screen, where an SVG is scaled too. Formulas have small indices by right.
SIZES = """
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), small = [];
let seen = 0;
for (const fold of document.querySelectorAll('details')) fold.open = true;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement, text = walker.currentNode.textContent.trim();
  if (!text || element.closest('script, style, desc, title, template, option, .katex, sup, sub') || !element.checkVisibility()) continue;
  ++seen;
  const scale = element.ownerSVGElement ? element.getScreenCTM().a : 1, size = parseFloat(getComputedStyle(element).fontSize) * scale;
  if (size < 9) small.push(`${size.toFixed(1)} px: ${text.slice(0, 40)}`);
}
return [small, seen];
"""


def takes(i: int) -> bool:
    """Whether the i-th of many that are alike is looked at."""
    return i % 16 == 0 or bool(os.environ.get("LADDER_WHOLE"))


def start():
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "localhost,127.0.0.1"  # the driver is spoken to by HTTP
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


class BrowserCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.site = pages_tests.built_site(cls)
        cls.pages = sorted(path for path in cls.site.rglob("*.html") if path.name not in ("index.html", "search.html", "slides.html"))
        cls.pages.append(cls.site / "docs" / "index.html")
        cls.browser = start()
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self) -> None:
        self.screen(DESK)

    def screen(self, metrics: dict) -> None:
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def run_script(self, script: str, *arguments):
        return self.browser.execute_script(script, *arguments)

    def wait_for(self, condition, seconds: float = 300):
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.browser, seconds, poll_frequency=0.02).until(lambda _: condition())

    def open(self, address: str) -> None:
        """An address that differs from the shown one by its hash alone is no new page: open about:blank between."""
        self.browser.get_log("performance")
        self.browser.get(address)

    def check_what_was_asked_for(self) -> None:
        """Nothing from outside the disk, and a silent console, since open()."""
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        self.assertTrue(asked)
        self.assertEqual([url for url in asked if not url.startswith(("file:", "data:"))], [])
        self.assertEqual([entry["message"] for entry in self.browser.get_log("browser")], [])


def skip_unless_possible() -> None:
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    if missing or not importlib.util.find_spec("selenium") or not pages_tests.can_build():
        print("The site is not tested in a browser; that takes chromium, chromium-driver, python3-selenium and ./ladder docs")
        sys.exit(77)


def main() -> None:
    skip_unless_possible()
    unittest.main()


if __name__ == "__main__":
    pages_tests.skip_unless_possible()
    pages_tests.build_all(Path(sys.argv[1]))
