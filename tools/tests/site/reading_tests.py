"""The site as a reader meets it, in Chromium: ratios in sight on a phone, a menu at the head, plots that follow a dark
page, and a front page on which there is something to see."""
from __future__ import annotations

import io
import json

from tools import rungs
from tools.paths import SITE
from tools.tests.site import browser


class Reading(browser.BrowserCase):
    def page(self, name: str):
        return self.site / "docs" / f"{name}.html"

    def show_as(self, scheme: str) -> None:
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def test_ratios_are_in_sight_on_a_phone(self) -> None:
        self.screen(browser.PHONE)
        for page in (self.page("ladder"), self.site / "README.html"):
            self.open(page.as_uri())
            ends = self.run_script("return [...document.querySelectorAll('div.body th')].filter(h => ['x FA2', 'x FlashAttention-2'].includes(h.textContent))"
                                   ".map(h => h.getBoundingClientRect()).filter(box => box.width).map(box => box.right)")
            self.assertTrue(ends, page)
            self.assertLess(max(ends), browser.PHONE["width"], page)

    def test_the_menu_brings_up_the_contents(self) -> None:
        self.screen(browser.PHONE)
        self.open(self.page("gpu").as_uri())
        where = "return document.querySelector('.sphinxsidebar').getBoundingClientRect().top"
        self.assertGreater(self.run_script(where), 1000)  # at the foot
        contents = self.browser.find_element("css selector", "nav.top .contents")
        contents.click()
        self.assertLess(self.run_script(where), 150)
        self.assertEqual(contents.get_attribute("aria-expanded"), "true")
        contents.click()
        self.assertGreater(self.run_script(where), 1000)
        self.screen(browser.DESK)
        self.assertFalse(contents.is_displayed())  # the contents stand beside the page
        links = self.run_script("return [...document.querySelectorAll('nav.top a')].map(a => a.getAttribute('href'))")
        self.assertGreater(len(links), 5)

    def test_plots_follow_a_dark_page(self) -> None:
        from matplotlib import image

        self.addCleanup(self.show_as, "light")
        for name in ("ladder", "traffic"):
            for scheme, low, high in (("light", 0.9, 1.0), ("dark", 0.0, 0.2)):
                self.show_as(scheme)
                self.open(self.page(name).as_uri())
                plots = self.browser.find_elements("css selector", "div.body img")
                self.assertTrue(plots)
                for plot in plots:
                    pixels = image.imread(io.BytesIO(plot.screenshot_as_png))[..., :3]
                    ground = float(pixels[4:12, 4:12].mean())
                    self.assertTrue(low <= ground <= high, (name, scheme, ground))
                    self.assertGreater(abs(float(pixels.min() if scheme == "light" else pixels.max()) - ground), 0.6)  # there is ink on it

    def test_the_front_page(self) -> None:
        self.open(self.page("index").as_uri())
        bars = self.run_script("return [...document.querySelectorAll('.drawing a')].map(a => a.getAttribute('href'))")
        self.assertGreater(len(bars), 20)
        known = {f"../{rung.directory}/README.html" for rung in rungs.known()}
        self.assertEqual(set(bars) - known, set())
        self.assertLess(self.run_script("return document.querySelector('.drawing svg').getBoundingClientRect().bottom"), browser.DESK["height"])
        run = json.loads((SITE / "recorded" / "without_wait.json").read_text(encoding="utf-8"))
        text = self.run_script("return document.querySelector('div.demonstration').textContent")
        for words in (run["cut"], run["command"], *run["report"]):
            self.assertIn(words, text)
        self.assertIn("answers WRONG", text)
        fold = self.browser.find_element("css selector", "div.demonstration details")
        self.run_script("arguments[0].querySelector('summary').focus()", fold)
        self.browser.switch_to.active_element.send_keys("\n")
        self.assertEqual(fold.get_attribute("open"), "true")
        self.check_what_was_asked_for()


if __name__ == "__main__":
    browser.main()
