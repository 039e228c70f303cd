"""Every page of the site in Chromium, from disk: nothing leaves the disk, the console stays silent, formulas are set, pages
fit a phone, the search finds."""
from __future__ import annotations

import docs_browser


class Pages(docs_browser.BrowserCase):
    def test_every_page_on_a_phone(self) -> None:
        self.screen(docs_browser.PHONE)
        formulas = 0
        for page in self.pages:
            with self.subTest(page=page.relative_to(self.site)):
                self.open(page.as_uri())
                self.check_what_was_asked_for()
                self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"),
                                     docs_browser.PHONE["width"])
                counts = self.run_script("return ['.formula', '.formula .katex', '.katex-error'].map(s => "
                                         "document.querySelectorAll(s).length)")
                self.assertEqual((counts[1], counts[2]), (counts[0], 0))
                formulas += counts[0]
        self.assertGreater(formulas, 20)

    def test_the_front_page_opens_from_the_top_of_the_folder(self) -> None:
        self.open((self.site / "index.html").as_uri())
        self.wait_for(lambda: self.browser.current_url.endswith("/docs/index.html"))

    def test_the_search_finds(self) -> None:
        self.open((self.site / "search.html").as_uri() + "?q=swizzle")
        found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))"
        self.wait_for(lambda: self.run_script(found))
        self.assertTrue(any("02_swizzle/README.html" in link for link in self.run_script(found)))
        self.check_what_was_asked_for()


if __name__ == "__main__":
    docs_browser.main()
