"""Every page of the site in Chromium, from disk: nothing leaves the disk, the console stays silent, formulas are set, pages
fit a phone and a sheet of paper, the search finds."""
from __future__ import annotations

import subprocess
import sys

import browser
from ladder import COPYING, PLAIN


class Pages(browser.BrowserCase):
    def test_every_page_on_a_phone(self) -> None:
        self.screen(browser.PHONE)
        formulas = 0
        for page in self.pages:
            with self.subTest(page=page.relative_to(self.site)):
                self.open(page.as_uri())
                self.check_what_was_asked_for()
                self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"),
                                     browser.PHONE["width"])
                counts = self.run_script("return ['.formula', '.formula .katex', '.katex-error'].map(s => "
                                         "document.querySelectorAll(s).length)")
                self.assertEqual((counts[1], counts[2]), (counts[0], 0))
                formulas += counts[0]
                small = self.run_script(
                    "return [...document.querySelectorAll('.drawing text')].map(t => [t.textContent, parseFloat(getComputedStyle(t).fontSize)"
                    " * t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width]).filter(t => t[1] < 9)")
                self.assertEqual(small, [])
                self.assertEqual(self.run_script("return [...document.images].filter(i => i.clientWidth < 600).map(i => i.src)"), [])
        self.assertGreater(formulas, 20)

    def test_every_page_on_paper(self) -> None:
        """What print media show, on the width of an A4 sheet within its margins: no chrome, and nothing that is cut off."""
        width = 688  # 182 mm
        self.screen({"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False})
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"media": ""})
        for page in self.pages:
            with self.subTest(page=page.relative_to(self.site)):
                self.open(page.as_uri())
                chrome = self.run_script("return [...document.querySelectorAll('div.sphinxsidebar, div.related, nav, .headerlink')]"
                                         ".filter(e => e.getClientRects().length).length")
                cut = self.run_script("return [...document.querySelectorAll('div.body :is(pre, .line, table, td, .formula, figure, svg, img)')]"
                                      ".filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display != 'inline'"
                                      " && getComputedStyle(e).overflowX != 'visible'"
                                      " || e.getBoundingClientRect().right > arguments[0] + 1).map(e => e.outerHTML.slice(0, 80))", width)
                self.assertEqual((chrome, cut), (0, []))

    def test_a_hand_out(self) -> None:
        script = browser.pages_tests.ROOT / "docs" / "site" / "handouts.py"
        folder = self.site / "handouts"
        run = subprocess.run([sys.executable, script, self.site, folder, COPYING.number], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertRegex(run.stdout, rf"{COPYING.name}\.pdf: [1-9]\d* sheets")
        self.assertTrue((folder / f"{COPYING.name}.pdf").read_bytes().startswith(b"%PDF"))
        run = subprocess.run([sys.executable, script, self.site, folder, "77"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("no page 77", run.stderr)
        run = subprocess.run([sys.executable, script, self.site, folder], capture_output=True, text=True, env={"PATH": str(folder)})
        self.assertEqual(run.returncode, 77)
        self.assertIn("apt-get install chromium", run.stderr)

    def test_the_front_page_opens_from_the_top_of_the_folder(self) -> None:
        self.open((self.site / "index.html").as_uri())
        self.wait_for(lambda: self.browser.current_url.endswith("/docs/index.html"))

    def test_the_search_finds(self) -> None:
        self.open((self.site / "search.html").as_uri() + f"?q={PLAIN.word}")
        found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
        self.wait_for(lambda: self.run_script(found))
        self.assertTrue(any(f"{PLAIN.directory}/README.html" in link for link in self.run_script(found)))
        self.check_what_was_asked_for()


if __name__ == "__main__":
    browser.main()
