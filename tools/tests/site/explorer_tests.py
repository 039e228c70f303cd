"""The bank and fragment explorer in Chromium: its bank model against the emulator's, its fragments against the code's layouts,
what it says to a mistake, by hand, key and link."""
from __future__ import annotations

import re

from tools.site.drawings import dealt, layouts
from tools.tests.site import browser

SET = """
  const [values] = arguments;
  for (const [name, value] of Object.entries(values)) {
    const control = document.querySelector(`[data-choice=${name}]`);
    control.value = value;
    control.dispatchEvent(new Event(name === 'preset' ? 'change' : 'input', {bubbles: true}));
  }
"""
SHOWN = """
  const text = (selector) => document.querySelector(selector).textContent;
  return {verdict: text('.verdict'), reading: text('.reading'), wrong: text('.explorer p.wrong'), hidden: document.querySelector('.verdict').hidden,
          costs: [...document.querySelectorAll('.costs tbody tr')].map(row => [...row.querySelectorAll('td')].map(cell => Number(cell.textContent))),
          cells: [...document.querySelectorAll('.banks g')].map(cell => [cell.dataset.row, cell.dataset.slot, cell.dataset.chunks]),
          picked: [...document.querySelectorAll('.banks g.picked')].length};
"""


class Explorer(browser.BrowserCase):
    def start(self, hash: str = "") -> None:
        self.browser.get("about:blank")
        self.open((self.site / "docs" / "explorer.html").as_uri() + hash)

    def tearDown(self) -> None:
        self.check_what_was_asked_for()

    def choose(self, **values) -> dict:
        self.run_script(SET, values)
        return self.run_script(SHOWN)

    def test_counts_are_those_of_the_emulator(self) -> None:
        self.start()
        mappings = layouts()["mappings"]
        self.assertGreater(len({str(mapping["reads"]) for mapping in mappings}), 5)
        for mapping in mappings:
            with self.subTest(expression=mapping["expression"], pitch=mapping["pitch"]):
                shown = self.choose(expression=mapping["expression"], pitch=mapping["pitch"])
                self.assertEqual((shown["wrong"], shown["hidden"]), ("", False))
                self.assertEqual(shown["costs"], mapping["reads"])
                self.assertIn(f"Reading with ldmatrix: {sum(map(sum, mapping['reads']))} wavefronts where 64 would do", shown["verdict"])
                self.assertIn(f"with st.shared.v4: {sum(mapping['writes'])} wavefronts where 64 would do", shown["verdict"])
                lost = re.search(r"(\d+) chunks? of 512 overwrite another", shown["verdict"])
                self.assertEqual(int(lost[1]) if lost else 0, mapping["lost"])
                behind = re.search(r"and (\d+) more lie behind", shown["verdict"])
                self.assertEqual(int(behind[1]) + 1 if behind else 0, mapping["behind"])
                self.assertEqual("a place of its own" in shown["verdict"], not mapping["lost"] and not mapping["behind"])

    def test_the_grid_is_where_the_kernels_put_their_chunks(self) -> None:
        self.start()
        for name, expression in (("plain", "chunk"), ("swizzled", "chunk ^ row % 8")):
            shown = self.choose(expression=expression, pitch=16, chunk=2, group=0)
            places = {(int(row), int(chunk)): int(slot) for row, slot, chunks in shown["cells"] for chunk in chunks.split()}
            for row, offsets in enumerate(layouts()[name]["offsets"]):
                for chunk, offset in enumerate(offsets):
                    self.assertEqual(places[row, chunk], offset % 128 // 16, (name, row, chunk))
            count = layouts()[name]["wavefronts"]
            self.assertIn(f": {count} wavefront{'s' * (count > 1)}.", shown["reading"])
            self.assertEqual(shown["picked"], 8)
            chosen = self.run_script("const p = document.querySelector('[data-choice=preset]'); return p.selectedOptions[0].textContent")
            self.assertEqual(chosen.split()[0], {"plain": "none", "swizzled": "XOR"}[name])
        shown = self.choose(preset=6)
        self.assertIn("Data loss: chunk 8 of row 0 lies where chunk 0 of row 0 does, at byte 0; 256 chunks", shown["verdict"])

    def test_mistakes_are_named(self) -> None:
        self.start()
        for expression, reason in {
            "": "It is empty", "chunk ^": "It ends where", "chunk ^^ row": '"^" at 8 stands where', "(chunk": "The ( at 1 is not closed",
            "chunk)": '")" at 6 closes nothing', "chunk row": '"row" at 7 has no operator', "col": '"col" at 1 is unknown', "chunk $ 1": '"$" at 7 is no part',
            "chunk / (row - row)": "The right side of / is 0", "chunk % 0": "The right side of % is 0", "chunk << 40": "It shifts by 40",
            "chunk - 1 - row": "did a difference fall below 0", "010": "octal", "99999999999": "more than 32 bits", "1 + " * 99 + "1": "200 characters",
            "alert(1)": '"alert" at 1 is unknown', "constructor": '"constructor" at 1 is unknown', "row.x": '"." at 4 is no part',
        }.items():
            with self.subTest(expression=expression):
                if len(expression) > 200:
                    self.run_script("document.querySelector('[data-choice=expression]').removeAttribute('maxlength')")
                shown = self.choose(expression=expression)
                self.assertIn(reason, shown["wrong"])
                self.assertTrue(shown["hidden"])
        self.assertIn("16 to 64 chunks", self.choose(expression="chunk", pitch=3)["wrong"])
        self.assertEqual(self.choose(expression="chunk", pitch=16)["wrong"], "")

    def test_fragments_are_those_of_the_code_and_of_the_hardware(self) -> None:
        self.start()
        expected = {name: {(lane, i // (1 if name == "C" else 2)): [] for lane in range(32) for i in range(len(layouts()[name]["lanes"][lane]))}
                    for name in "ABC"}
        for name in "ABC":
            for lane, places in enumerate(layouts()[name]["lanes"]):
                for i, place in enumerate(places):
                    expected[name][lane, i // (1 if name == "C" else 2)].append(place)
        for name, fixture in (("ldmatrix", "ldmatrix_x4"), ("ldmatrix-trans", "ldmatrix_x4_trans")):
            expected[name] = {(lane, 0): [] for lane in range(32)}
            for place, (lane, _) in dealt(fixture).items():
                expected[name][lane, 0].append(list(place))
        for name, registers in expected.items():
            with self.subTest(operand=name):
                self.choose(operand=name)
                shown = self.run_script("""
                  const found = [], set = (name, value) => {
                    const control = document.querySelector(`[data-choice=${name}]`);
                    control.value = value;
                    control.dispatchEvent(new Event('input', {bubbles: true}));
                  };
                  for (const [lane, register] of arguments[0]) {
                    set('lane', lane);
                    set('register', register);
                    found.push([document.querySelector('.held').textContent,
                                [...document.querySelectorAll('.fragments g.picked')].map(cell => [Number(cell.dataset.row), Number(cell.dataset.column)])]);
                  }
                  return found;""", [list(key) for key in registers])
                for (words, picked), ((lane, register), places) in zip(shown, registers.items(), strict=True):
                    self.assertEqual(sorted(picked), sorted(places))
                    self.assertIn(f"Lane {lane}", words)
                    for row, column in places:
                        self.assertIn(f"row {row} column {column}", words)
        self.choose(operand="C")
        self.run_script("document.querySelector('.fragments g[data-row=\"9\"][data-column=\"3\"]').dispatchEvent(new MouseEvent('click'))")
        self.assertIn("Lane 5, register 3 of C: row 9 column 3.", self.run_script("return document.querySelector('.held').textContent"))

    def test_keys_and_a_link(self) -> None:
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        self.start()
        names = []
        for _ in range(40):
            ActionChains(self.browser).send_keys(Keys.TAB).perform()
            name = self.run_script("return document.activeElement.dataset.choice")
            if name:
                names.append(name)
            if name == "expression":
                ActionChains(self.browser).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys("chunk ^ row % 4").perform()
            if name in ("chunk", "lane"):
                ActionChains(self.browser).send_keys(Keys.ARROW_RIGHT).perform()
        self.assertEqual(names[:8], ["preset", "expression", "pitch", "chunk", "group", "operand", "lane", "register"])
        shown = self.run_script(SHOWN)
        self.assertIn("2.00-way", shown["verdict"])
        self.assertIn("Chunk 3 of rows 0 to 7, one 8x8 matrix, begins in bank 12, 8, 4, 0, 12, 8, 4, 0: 2 wavefronts.", shown["reading"])
        self.wait_for(lambda: "row+%25+4" in self.browser.current_url)
        link = self.browser.current_url.partition("#")[2]
        self.start("#" + link)
        self.assertEqual(self.run_script(SHOWN), shown)
        self.assertIn("Lane 6, register 0 of A", self.run_script("return document.querySelector('.held').textContent"))
        self.start("#operand=Z&lane=x&pitch=&chunk=99")
        self.assertIn("register 0 of A", self.run_script("return document.querySelector('.held').textContent"))

    def test_it_fits_a_phone(self) -> None:
        self.screen(browser.PHONE)
        self.start("#expression=chunk+%25+2&pitch=64")
        self.assertLessEqual(self.run_script("return document.documentElement.scrollWidth"), browser.PHONE["width"])
        self.assertIn("Data loss", self.run_script(SHOWN)["verdict"])

    def test_without_scripts_a_table_tells_the_counts(self) -> None:
        self.start()
        page = (self.site / "docs" / "explorer.html").read_text(encoding="utf-8")
        for mapping in layouts()["mappings"]:
            self.assertIn(f"<td>{mapping['pitch']}</td><td>{sum(map(sum, mapping['reads']))}</td><td>{sum(mapping['writes'])}</td>"
                          f"<td>{mapping['lost']}</td>", page)


if __name__ == "__main__":
    browser.main()
