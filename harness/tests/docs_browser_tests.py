"""The site in Chromium, from disk: nothing leaves the disk, the console stays silent, formulas are set, pages fit a phone,
the search finds. Skipped (exit code 77) without Chromium, its driver, Selenium, or what docs_tests.py needs."""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import docs_tests

PHONE = {"width": 380, "height": 800, "deviceScaleFactor": 1, "mobile": True}


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


class Browser(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.site = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.site)
        built = docs_tests.build(docs_tests.ROOT, cls.site)
        if built.returncode != 0:
            raise AssertionError(built.stderr)
        cls.pages = sorted(path for path in cls.site.rglob("*.html") if path.name not in ("index.html", "search.html"))
        cls.pages.append(cls.site / "docs" / "index.html")
        cls.browser = start()
        cls.addClassCleanup(cls.browser.quit)

    def open(self, address: str) -> None:
        self.browser.get_log("performance")
        self.browser.get(address)

    def check_what_was_asked_for(self) -> None:
        events = [json.loads(entry["message"])["message"] for entry in self.browser.get_log("performance")]
        asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
        self.assertTrue(asked)
        self.assertEqual([url for url in asked if not url.startswith(("file:", "data:"))], [])
        self.assertEqual([entry["message"] for entry in self.browser.get_log("browser")], [])

    def test_every_page_on_a_phone(self) -> None:
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
        formulas = 0
        for page in self.pages:
            with self.subTest(page=page.relative_to(self.site)):
                self.open(page.as_uri())
                self.check_what_was_asked_for()
                self.assertLessEqual(self.browser.execute_script("return document.documentElement.scrollWidth"), PHONE["width"])
                counts = self.browser.execute_script(
                    "return ['.formula', '.formula .katex', '.katex-error'].map(s => "
                    "document.querySelectorAll(s).length)")
                self.assertEqual((counts[1], counts[2]), (counts[0], 0))
                formulas += counts[0]
        self.assertGreater(formulas, 20)

    def test_the_front_page_opens_from_the_top_of_the_folder(self) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self.open((self.site / "index.html").as_uri())
        WebDriverWait(self.browser, 5).until(lambda browser: browser.current_url.endswith("/docs/index.html"))

    def test_the_search_finds(self) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self.open((self.site / "search.html").as_uri() + "?q=swizzle")
        found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
        WebDriverWait(self.browser, 5).until(lambda browser: browser.execute_script(found))
        self.assertTrue(any("02_swizzle/README.html" in link for link in self.browser.execute_script(found)))
        self.check_what_was_asked_for()


if __name__ == "__main__":
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    if missing or not importlib.util.find_spec("selenium") or not docs_tests.can_build():
        print("The site is not tested in a browser; that takes chromium, chromium-driver, python3-selenium and ./ladder docs")
        sys.exit(77)
    unittest.main()
