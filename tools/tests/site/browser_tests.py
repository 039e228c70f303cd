"""Every page of the site in Chromium, from disk: nothing leaves the disk, the console stays silent, formulas are set, pages
fit a phone and a sheet of paper, letters stand out in both schemes, the search finds."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools.tests.site import browser, contrast
from tools.tests.site.ladder import COPYING, PLAIN


class Pages(browser.BrowserCase):
    def test_every_page(self) -> None:
        """On a phone, on paper, and its colours: one load for all of it. Pages with the same kinds of elements are alike."""
        self.addCleanup(self.show_as, "", "light")
        self.formulas, self.folds, self.grounds, seen = 0, 0, {}, set()
        for page in self.chosen([*self.pages, self.site / "search.html"]):
            self.browser.get("about:blank")  # what is set out anew for a phone is not the page before
            self.screen(browser.PHONE)
            self.show_as("screen", "light")
            self.open(page.as_uri())
            with self.subTest(page=page.relative_to(self.site)):
                self.check_what_was_asked_for()
                self.unfold(True)
                self.check_on_a_phone(page)
                self.check_contrast("screen", "light")
                classes = set(self.run_script("return [...document.querySelectorAll('[class]')].flatMap(e => [...e.classList])"))
                if classes <= seen:  # neither the dark scheme nor the style sheet for paper has anything new to say
                    self.show_as("print", "dark")
                else:
                    self.check_contrast("screen", "dark")
                    self.check_contrast("print", "dark")
                seen |= classes
                self.unfold(False)
                self.check_on_paper()
        self.assertGreater(self.folds, 50)
        self.assertGreater(self.formulas, 10)
        self.assertEqual([len(colours) for colours in self.grounds.values()], [1, 1, 1])
        self.assertEqual(self.grounds["screen", "light"], self.grounds["print", "dark"])
        self.assertNotEqual(self.grounds["screen", "light"], self.grounds["screen", "dark"])

    @staticmethod
    def chosen(pages: list[Path]) -> list[Path]:
        kinds: set[str] = set()
        new: list[Path] = []
        alike: list[Path] = []
        for page in pages:
            its = {kind for said in re.findall(r'class="([^"]+)"', page.read_text(encoding="utf-8")) for kind in said.split()}
            (alike if its <= kinds else new).append(page)
            kinds |= its
        return new + [page for i, page in enumerate(alike) if browser.takes(i)]

    def show_as(self, media: str, scheme: str) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    def unfold(self, opened: bool) -> None:
        self.run_script("for (const fold of document.querySelectorAll('details')) fold.open = arguments[0]", opened)

    def check_on_a_phone(self, page: Path) -> None:
        self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"), browser.PHONE["width"])
        counts = self.run_script("return ['.formula', '.formula .katex', '.katex-error'].map(s => document.querySelectorAll(s).length)")
        self.assertEqual((counts[1], counts[2]), (counts[0], 0))
        self.formulas += counts[0]
        small, seen = self.run_script(browser.SIZES)
        self.assertEqual(small, [])
        self.assertGreater(seen, 10)
        for source, width in self.run_script("return [...document.images].map(i => [i.currentSrc, i.clientWidth])"):
            figure = (page.parent / unquote(urlsplit(source).path)).read_text(encoding="utf-8")
            wide = float(re.search(r'viewBox="0 0 ([\d.]+) ', figure)[1])
            sizes = [float(size) for size in re.findall(r"font: (?:[a-z]+ )?([\d.]+)px", figure)]
            self.assertGreaterEqual(min(sizes) * width / wide, 9, source)

    def check_contrast(self, media: str, scheme: str) -> None:
        self.show_as(media, scheme)
        faint, count, ground = self.run_script(contrast.SCRIPT)
        self.assertEqual(faint, [], (media, scheme))
        self.assertGreater(count, 15)
        self.grounds.setdefault((media, scheme), set()).add(ground)

    def check_on_paper(self) -> None:
        """What print media show, on the width of an A4 sheet within its margins: no chrome, and nothing that is cut off."""
        width = 688  # 182 mm
        self.screen({"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
        chrome = self.run_script("return [...document.querySelectorAll('div.sphinxsidebar, div.related, nav, .headerlink')]"
                                 ".filter(e => e.getClientRects().length).length")
        cut = self.run_script("return [...document.querySelectorAll('div.body :is(pre, .line, table, td, .formula, figure, svg, img)')]"
                              ".filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline'"
                              " && getComputedStyle(e).overflowX != 'visible'"
                              " || e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.outerHTML.slice(0, 80))", width)
        self.assertEqual((chrome, cut), (0, []))
        hidden, folds = self.run_script(  # a sheet of paper opens nothing; what it leaves out altogether has no folds
            "const folds = [...document.querySelectorAll('div.body details')].filter(e => e.checkVisibility());"
            "return [folds.filter(e => [...e.children].some(c => c.tagName != 'SUMMARY' && !c.checkVisibility())).length, folds.length]")
        self.assertEqual(hidden, 0)
        self.folds += folds

    def test_a_fold_opens_by_keyboard(self) -> None:
        from selenium.webdriver.common.keys import Keys

        self.open((self.site / PLAIN.directory / "README.html").as_uri())
        for place in ("div.body details", "td details"):
            fold = self.browser.find_element("css selector", place)
            summary = fold.find_element("css selector", "summary")
            self.assertIsNone(fold.get_attribute("open"))
            self.run_script("arguments[0].focus()", summary)
            self.browser.switch_to.active_element.send_keys(Keys.ENTER)
            self.assertEqual(fold.get_attribute("open"), "true")

    def test_a_hand_out(self) -> None:
        script = "-m", "tools.site.handouts"
        folder = self.site / "handouts"
        run = subprocess.run([sys.executable, *script, self.site, folder, COPYING.number], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertRegex(run.stdout, rf"{COPYING.name}\.pdf: [1-9]\d* sheets")
        self.assertTrue((folder / f"{COPYING.name}.pdf").read_bytes().startswith(b"%PDF"))
        run = subprocess.run([sys.executable, *script, self.site, folder, "none"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("no page none", run.stderr)
        run = subprocess.run([sys.executable, *script, self.site, folder], capture_output=True, text=True, env={"PATH": str(folder)})
        self.assertEqual(run.returncode, 77)
        self.assertIn("apt-get install chromium", run.stderr)

    def test_the_front_page_opens_from_the_top_of_the_folder(self) -> None:
        self.open((self.site / "index.html").as_uri())
        self.wait_for(lambda: self.browser.current_url.endswith("/docs/index.html"))

    def test_the_search_finds(self) -> None:
        self.open((self.site / "search.html").as_uri() + f"?q={PLAIN.word}")
        found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
        self.wait_for(lambda: any(f"{PLAIN.directory}/README.html" in link for link in self.run_script(found)))  # one after the other
        self.check_what_was_asked_for()


if __name__ == "__main__":
    browser.main()
