"""The site: it builds without a warning, says what the repository says, and refuses what is missing. Skipped (exit code 77)
where Sphinx, MyST or KaTeX are not installed: `./ladder docs` installs them."""
from __future__ import annotations

import csv
import html
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tools import changes, results, rungs
from tools.paths import ROOT, SITE
from tools.site import readme
from tools.tests.site.ladder import COPYING, EARLIER, is_there, PLAIN, STAGES

DOCS = ROOT / "docs"


def can_build() -> bool:
    found = all(importlib.util.find_spec(name) for name in ("sphinx", "myst_parser", "jsonschema"))
    return found and Path("/usr/share/javascript/katex").is_dir()


def build(root: Path, site: Path, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "-n", *options, "-c", root / "tools" / "site", root, site]
    return subprocess.run(command, capture_output=True, text=True, cwd=root)


def built_site(case: type[unittest.TestCase]) -> Path:
    """The site, which must build without a warning: the one that $LADDER_SITE names, or the class's own, which goes with it."""
    if given := os.environ.get("LADDER_SITE"):
        return Path(given)
    site = Path(tempfile.mkdtemp())
    case.addClassCleanup(shutil.rmtree, site)
    build_all(site)
    return site


def build_all(site: Path) -> None:
    built = build(ROOT, site, "-j", "auto")
    if built.returncode != 0 or built.stderr:
        raise AssertionError(built.stderr)


class Links:
    """What a page points to, and the names that can be pointed to in it. Attributes stand in double quotes; a parser takes four times as long."""

    def __init__(self, text: str) -> None:
        self.targets: list[str] = []
        self.sources: list[str] = []  # elsewhere; one has to follow the link, nothing is fetched
        self.names: set[str] = set()
        text = re.sub(r"(?s)(<script\b[^>]*>).*?(?=</script>)|<!--.*?-->", r"\1", text)
        for tag, attributes in re.findall(r"<([a-zA-Z][\w:-]*)((?:\s[^<>]*)?)>", text):
            for name, value in re.findall(r'\s(id|href|src)="([^"]*)"', attributes):
                value = html.unescape(value)
                if name == "id":
                    self.names.add(value)
                elif value:
                    (self.sources if tag == "a" and value.startswith("https://") else self.targets).append(value)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.site = built_site(cls)
        cls.rows = list(filter(is_there, results.table("h200.csv")))
        cls.chapters = {rung.name: cls.site / rung.directory / "README.html" for rung in rungs.known()}
        cls.pages = {path: path.read_text(encoding="utf-8") for path in cls.site.rglob("*.html")}

    def test_every_link_stays_on_the_disk_and_leads_somewhere(self) -> None:
        links = {path: Links(text) for path, text in self.pages.items()}
        self.assertGreater(len(links), len(STAGES))
        files = {str(path) for path in self.site.rglob("*")}
        wrong = []
        for page, found in links.items():
            self.assertTrue(page == self.site / "docs" / "references.html" or not found.sources, (page, found.sources))
            for target in set(found.targets):
                parts = urlsplit(target)
                path = os.path.normpath(page.parent / unquote(parts.path)) if parts.path else str(page)
                there = not parts.scheme and not parts.netloc and path in files
                if not there or (parts.fragment and Path(path) in links and unquote(parts.fragment) not in links[Path(path)].names):
                    wrong.append((str(page.relative_to(self.site)), target))
        self.assertEqual(wrong, [])

    def test_styles_ask_for_nothing_from_outside(self) -> None:
        for style in self.site.glob("_static/*.css"):
            for target in re.findall(r"url\(([^)]+)\)", style.read_text(encoding="utf-8")):
                self.assertNotIn("//", target, style.name)

    def test_a_chapter_shows_its_kernel_and_as_many_changes_as_make_diff(self) -> None:
        changed = changes.since_previous()
        self.assertGreater(len(changed), 0)
        for rung in rungs.known():
            page = self.pages[self.chapters[rung.name]]
            lines = len(rung.kernel.read_text().splitlines())
            self.assertEqual(len(re.findall(r'<span class="line[^>]* id="L\d+"', page)), lines, rung.name)
            shown = re.findall(r'data-changed="(\d+)"', page)
            self.assertEqual(shown, [str(changed[rung.name][1])] if rung.name in changed else [], rung.name)

    def test_a_change_stands_in_front_of_what_it_did(self) -> None:
        for rung in rungs.known():
            sections = re.findall(r"<h2>([^<]+)<", self.pages[self.chapters[rung.name]])
            self.assertEqual(sections[-1], "The whole kernel")
            if rung.previous:
                at = sections.index("The change, line by line")
                self.assertEqual(sections[at + 1], "What happened", rung.name)

    def navigation(self, page: Path) -> list[str]:
        """Where the links of the sidebar lead, from the site's root."""
        text = self.pages[page]
        targets = re.findall(r'href="([^"#]+)"', text[text.index('class="sphinxsidebar"'):])
        return [str((page.parent / target).resolve().relative_to(self.site.resolve())) for target in targets]

    def test_every_rung_is_in_the_navigation_in_its_order(self) -> None:
        top, by_name = [], rungs.by_name()
        folded: dict[str, list[str]] = {}  # the pages of a line's rung, of what hangs under it in the same part
        for rung in rungs.known():
            has_page = rung.part and (ROOT / rung.part / "README.md").is_file()
            page = f"{rung.part if has_page else rung.directory}/README.html"
            if rung.line != rung.name and by_name[rung.line].part == rung.part:
                folded.setdefault(rung.line, []).append(f"{rung.directory}/README.html")
            elif page not in top:
                top.append(page)
        shown = self.navigation(self.site / "docs" / "index.html")
        self.assertEqual([page for page in shown if page in top], top)
        for part in rungs.parts():
            page = self.site / part.name / "README.html"
            if part.name and page in self.pages:
                inside = [chapter for rung in part.rungs if (chapter := f"{rung.directory}/README.html") not in folded.get(rung.line, [])]
                shown = self.navigation(page)
                self.assertEqual([page for page in dict.fromkeys(shown) if page in inside], inside)  # the next page stands there again
                self.assertFalse({chapter for rung in part.rungs for chapter in folded.get(rung.name, [])} & set(shown))
        for name, chapters in folded.items():
            self.assertEqual([page for page in dict.fromkeys(self.navigation(self.chapters[name])) if page in chapters], chapters)

    def test_the_first_use_of_a_term_leads_to_the_glossary(self) -> None:
        page = self.pages[self.site / "docs" / "measuring.html"]
        links = re.findall(r'href="glossary.html#term-([^"]+)"', page)
        self.assertIn("rung", links)
        self.assertEqual(len(links), len(set(links)))
        self.assertNotIn("glossary.html#", page[page.index("<h1>"):page.index("</h1>")])

    def test_parts_of_a_kernel(self) -> None:
        page = self.pages[self.site / "docs" / "softmax.html"]
        stage, region = re.search(r'data-region="(\S+) SOFTMAX">(.*?)</figure>', page, re.S).groups()
        kernel = rungs.named(stage).kernel.read_text(encoding="utf-8").splitlines()
        shown = [int(n) for n in re.findall(r'data-n="(\d+)"', region)]
        self.assertIn("// SOFTMAX", kernel[shown[0] - 1])
        self.assertEqual(shown, list(range(shown[0], shown[-1] + 1)))
        self.assertIn("// PV", next(line for line in kernel[shown[-1]:] if line.strip()))

    def test_drawings_say_what_the_code_says(self) -> None:
        page = self.pages[self.site / "docs" / "fragments.html"]
        self.assertEqual(page.count('<figure class="drawing">'), 8)
        # Lane 5 of A, from the rule in the PTX ISA.
        self.assertIn("Lane 5 holds row 1 column 2 in register 0, row 1 column 3 in register 0, row 9 column 2 in register 1", page)
        self.assertIn("Plain: which chunk lies in which banks. Reading chunk 2 of eight rows: 8 wavefronts", page)
        self.assertIn("Swizzled: which chunk lies in which banks. Reading chunk 2 of eight rows: 1 wavefront", page)


    def test_the_drawings_of_a_chapter_stand_in_the_page_itself(self) -> None:
        shown = 0
        for rung in rungs.known():
            page = self.pages[self.chapters[rung.name]]
            for drawing in rung.path.glob("drawing*.svg"):
                shown += 1
                title = re.search("<title>.*?</title>", drawing.read_text(encoding="utf-8"))[0]
                self.assertRegex(page, rf'<figure class="drawing"><svg [^>]*>{re.escape(title)}')
                self.assertNotIn(drawing.name, page)
        self.assertGreater(shown, 20)

    def test_every_drawing_has_a_title_and_says_its_content_in_words(self) -> None:
        drawings = [(path, svg) for path, text in self.pages.items() for svg in re.findall(r'<figure class="drawing">.*?</figure>', text, re.S)]
        self.assertGreater(len(drawings), 15)
        for path, svg in drawings:
            with self.subTest(path.relative_to(self.site)):
                self.assertRegex(svg, r'role="img"><title>[^<]{20,}</title><desc>[^<]{40,}</desc>')

    def test_figures_follow_what_they_are_drawn_from(self) -> None:
        plain, copying = (re.search(rf"{start}[^.]*", self.pages[self.chapters[COPYING.name]])[0].split(", ")
                          for start in (f"{PLAIN.name}: copies", f"{COPYING.name}: requests"))
        # The point of asynchronous copies: one is asked for in front of the product that it hides behind.
        self.assertLess(plain.index("copies V0"), plain.index("QK0"))
        self.assertEqual(copying[copying.index("requests V0"):][:3], ["requests V0", "QK0", "waits for V0"])
        self.assertEqual(copying[copying.index("requests K1"):][:3], ["requests K1", "PV0", "waits for K1"])

    def test_a_tile_is_cut_as_the_rung_says(self) -> None:
        drawn = 0
        for rung in rungs.known():
            if f"<!-- drawing tiling-{rung.name} -->" in (rung.path / "README.md").read_text(encoding="utf-8"):
                drawn += 1
                tile, groups = rung.default, rung.default.m_tiles
                self.assertIn(f"Each of its {tile.warps} warps owns {16 * groups} rows of a tile, as {groups} row group{'s' * (groups > 1)} of 16, "
                              f"each cut into {tile.bc // 8} mma tiles", self.pages[self.chapters[rung.name]])
        self.assertGreater(drawn, 0)

    def test_counters_and_rates_are_those_of_the_rows(self) -> None:
        busy = {row["stage"]: float(row["value"]) for row in reversed(results.table("h200_counters.csv"))  # the default kernel stands first
                if row["metric"] == "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"}
        self.assertIn(f"<desc>tensor cores active, %: {busy[EARLIER.name]:.3g} in {EARLIER.name}, {busy[PLAIN.name]:.3g} in {PLAIN.name}",
                      self.pages[self.chapters[PLAIN.name]])
        for row in self.rows:
            if (row["kind"], row["n"], row["batch"], row["regime"], row["causal"], row["inputs"]) == ("stage", "8192", "16", "turns", "0", "normal") \
                    and "[" not in row["stage"] and row["dtype"] == "fp16":
                self.assertIn(f"{row['stage']}: {float(row['tflops']):.1f}.", self.pages[self.site / "docs" / "ladder.html"])

    def test_the_table_of_rungs(self) -> None:
        page = self.pages[self.site / "docs" / "ladder.html"]
        for rung in rungs.known():
            row = re.search(rf'<tr[^>]*>(?:(?!</tr>).)*href="\.\./{rung.directory}/README\.html"(?:(?!</tr>).)*</tr>', page, re.S)
            self.assertTrue(row, rung.name)
            for measured in self.rows:
                shown = tuple(measured[name] for name in ("stage", "batch", "n", "causal", "regime", "inputs"))
                if shown == (rung.name, "16", "8192", "0", "turns", "normal") and measured["vs_fa2"]:
                    self.assertIn(f"<p>{readme.times(float(measured['vs_fa2']))}</p>", row[0])

    def test_the_wrong_kernel_fails_before_the_readers_eyes(self) -> None:
        page = re.sub(r"<[^>]+>", "", self.pages[self.site / "docs" / "softmax.html"])
        with (SITE / "recorded" / "no_running_max.csv").open(encoding="utf-8", newline="") as file:
            for cells in csv.reader(file):
                for cell in cells:
                    self.assertIn(html.escape(cell), page)

    def test_what_was_tried_stands_whole(self) -> None:
        page = self.pages[self.site / "docs" / "tried.html"]
        cells = [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip().replace("’", "'") for cell in re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", page, re.S)]
        for name in ("h200_trials.csv", "h200_trials_hopper.csv"):
            rows = results.table(name)
            for row in [list(rows[0])[:-1], *(list(row.values()) for row in rows)]:
                self.assertTrue(any(cells[at:at + len(row)] == row for at, cell in enumerate(cells) if cell == row[0]), row)

    def test_a_figure_is_a_table_too(self) -> None:
        page = self.pages[self.site / "docs" / "traffic.html"]
        table = page[page.index("h200-time-over-n.svg"):]
        table = table[table.index("<details>"):table.index("</details>")]
        row = next(row for row in results.table("h200.csv") if (row["stage"], row["n"], row["batch"], row["regime"]) ==
                   (STAGES[0], "4096", "4", "turns"))
        self.assertRegex(table, rf'<td><p>{STAGES[0]} [a-z]</p></td>(\s*<td[^>]*><p>[^<]*</p></td>)*\s*<td[^>]*><p>{float(row["ms_median"]) / 64:.4g}</p></td>')


class Glossary(unittest.TestCase):
    """Links to the glossary mislead where the word has another sense."""

    def setUp(self) -> None:
        from tools.site import glossary_links

        self.first_use = glossary_links.first_use

    def test_the_same_word_in_another_sense(self) -> None:
        for term, text in (("block", "fetches a 16x16\nblock of V"), ("block", "the measured block and every number"), ("block", "one block of\ncode in which"),
                           ("head", "a coin that falls heads"), ("ring", "Ring attention joins in this way"), ("scheduler", "A Randomized Scheduler with"),
                           ("tile", "the fragments of two column tiles"),
                           ("in turns", "a producer, and two\nwarpgroups in turns"), ("tile", "of the left tile, then of the right tile"), ("phase", "a matrix is one phase of eight rows"), ("stage", "K has two stages")):
            self.assertIsNone(self.first_use(term, text), text)

    def test_the_sense_of_the_glossary(self) -> None:
        for term, text, found in (("block", "not the 16x16 block but the block of threads", 28), ("phase", "an mbarrier works in phases", 21),
                                  ("bank conflict", "what is left are bank\nconflicts", 17), ("head", "one head of 16", 4), ("SM", "small SMs", 6)):
            match = self.first_use(term, text)
            self.assertEqual(match and match.start(), found, text)


class Refusals(unittest.TestCase):
    """A copy of what the site is made of, with one thing broken, which a page says of itself: no other is read."""

    def build_with(self, path: str, edit, page: str, *options: str) -> str:
        folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        for name in ("docs", "harness", "tools", "common", "course", "README.md", "CONTRIBUTING.md", *{rung.directory.split("/")[0] for rung in rungs.known()}):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, folder / name)
        text = (folder / path).read_text(encoding="utf-8")
        edited = edit(text)
        self.assertNotEqual(text, edited)
        (folder / path).write_text(edited, encoding="utf-8")
        built = build(folder, folder / "site", "--keep-going", "-D", f"root_doc={page}", "-D", f"include_patterns={page}.md", *options)
        self.assertNotEqual(built.returncode, 0)
        return built.stderr

    def test_a_part_without_its_mark(self) -> None:
        said = self.build_with(f"{EARLIER.directory}/kernel.cuh", lambda text: text.replace("// SOFTMAX", "// Softmax"), f"{EARLIER.directory}/README")
        self.assertIn(f"{EARLIER.directory}/kernel.cuh has no mark // SOFTMAX", said)

    def test_a_rate_above_the_ceiling(self) -> None:
        def boast(text: str) -> str:
            rate = next(row["tflops"] for row in csv.DictReader(text.splitlines()) if row["stage"] == COPYING.name)
            return text.replace(f",{rate},", ",999,")

        said = self.build_with("docs/results/h200.csv", boast, "docs/lab")
        self.assertIn("above this card's ceiling", said)

    def test_a_link_that_leads_nowhere(self) -> None:
        said = self.build_with("docs/references.md", lambda text: text + "\n[there](../no_such_rung)\n", "docs/references", "-b", "dummy")
        self.assertIn("no_such_rung", said)


def skip_unless_possible() -> None:
    if not can_build():
        print("The site is not tested: Sphinx, MyST or KaTeX is not installed (./ladder docs installs them)")
        sys.exit(77)


if __name__ == "__main__":
    skip_unless_possible()
    unittest.main()
