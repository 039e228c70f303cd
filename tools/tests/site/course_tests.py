"""The course on the site: a page for each task with hints folded and no answer, exercises at the end of a chapter,
answers apart, and slides. In Chromium: slides fit and can be read, keys lead on, hand-outs leave answers out."""
from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

from tools import rungs
from tools.course import exercises
from tools.tests.site import browser
from tools.tests.site.ladder import COPYING

EXERCISES = exercises.all_exercises()
SIZES = """
const small = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let seen = 0;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || element.closest('script, desc, title')) continue;
  ++seen;
  const scale = element.ownerSVGElement ? element.getScreenCTM().a : 1, size = parseFloat(getComputedStyle(element).fontSize) * scale;
  if (size < (element.closest('code, sup') ? 12 : 13.9)) small.push(`${element.closest('.slide').id}: ${size}: ${element.textContent.slice(0, 30)}`);
}
return [small, seen];
"""


def plain(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page))


def bare(line: str) -> str:
    return re.sub(r"\s+", " ", line.partition("//")[0]).strip()


class Course(browser.BrowserCase):
    def text(self, page: str) -> str:
        return (self.site / f"{page}.html").read_text(encoding="utf-8")

    def test_a_task_has_a_page_with_hints_and_without_answers(self) -> None:
        answers = re.sub(r"\s+", " ", plain(self.text("course/answers")))
        told = 0
        for exercise in EXERCISES:
            page = self.text(f"course/exercises/{exercise.name}/task")
            with self.subTest(exercise.name):
                for level, hint in enumerate(exercise.hints, 1):
                    fold = re.search(rf"<details><summary>Hint {level}: .*?</details>", page, re.S)[0]
                    self.assertIn(re.sub(r"\W", "", hint)[-40:], re.sub(r"\W", "", plain(fold)))
                self.assertIn(f"./ladder learn start {exercise.name.partition('_')[0]}", plain(page))
                self.assertIn(exercise.title, answers.replace("’", "'"))  # as Sphinx sets it
                text = re.sub(r"\s+", " ", plain(page))
                for edit in exercise.data.get("blank", []) + exercise.data.get("bug", []):
                    lines = [bare(line) for line in edit["rung"].splitlines() if bare(line)]
                    told += len(lines)
                    for line in lines:
                        self.assertTrue(line in answers, line)
                    self.assertFalse(all(line in text for line in lines), lines)
        self.assertGreater(told, 20)

    def test_a_chapter_ends_with_its_exercises(self) -> None:
        for rung in rungs.known():
            page = self.text(f"{rung.directory}/README")
            section = re.search(r"<h2>Exercises<.*?<h2>The whole kernel", page, re.S)
            names = re.findall(r'href="[^"]*exercises/(\w+)/task\.html"', section[0]) if section else []
            self.assertEqual(names, [exercise.name for exercise in EXERCISES if rungs.named(exercise.rung) == rung], rung.name)

    def test_a_task_leads_to_what_is_read_before_it(self) -> None:
        led = 0
        for exercise in EXERCISES:
            page = self.text(f"course/exercises/{exercise.name}/task")
            for path in re.findall(r"`([\w./]+)\.md`", exercise.task):
                led += 1
                self.assertRegex(page, rf'href="../../../{re.escape(path)}.html"[^>]*><span[^>]*><code[^>]*><span class="pre">{re.escape(path)}.md', exercise.name)
        self.assertGreater(led, len(EXERCISES))

    # ---- slides ------------------------------------------------------------------------------------------------------
    def open_slides(self, query: str = "") -> None:
        self.screen({"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False})
        self.browser.get("about:blank")
        self.open((self.site / "slides.html").as_uri() + query)

    def test_every_rung_has_two_slides_from_its_chapter(self) -> None:
        page = self.text("slides")
        self.assertNotIn("&lt;!--", page, "a formula that no reader should see")
        for rung in rungs.known():
            first, second = (re.search(rf'<section class="slide " id="{rung.name}\.{n}".*?</section>', page, re.S)[0] for n in (1, 2))
            chapter = (rung.path / "README.md").read_text(encoding="utf-8")
            with self.subTest(rung.name):
                for part in (rung.limit, rung.idea):
                    self.assertIn(re.sub(r"\W", "", part), re.sub(r"\W", "", plain(first)))
                self.assertIn('<figure class="drawing"><svg', first)
                measured = chapter.partition("<!-- measured:begin -->")[2]
                for cell in re.search(r"^\| TFLOPS, in turns \| (.*) \|$", measured, re.M)[1].split(" | ") if "| TFLOPS, in turns |" in measured else []:
                    self.assertIn(cell, plain(second))
                kernel = rung.kernel.read_text(encoding="utf-8")
                shown = [plain(line)[1:].strip() for line in re.findall(r'<span class="(?:added|plain)">(.*?)\n</span>', second)]
                self.assertTrue(shown)
                for line in shown:
                    self.assertIn(line, kernel)

    def test_slides_fit_and_can_be_read(self) -> None:
        self.open_slides()
        self.run_script("for (const fold of document.querySelectorAll('details')) fold.open = true")
        count, cut = self.run_script("return [slides.length, slides.filter(full).map(s => s.id)]")
        foundations = self.run_script("return slides.filter(s => s.id.startsWith('docs-')).map(s => [s.id, s.querySelectorAll('svg').length])")
        self.assertGreater(len(foundations), 3)
        self.assertTrue(all(drawings for _, drawings in foundations), foundations)
        self.assertEqual(count, 2 * len(rungs.known()) + len(rungs.parts()) + len(foundations) + 1)
        self.assertEqual(cut, [])
        small, seen = self.run_script(SIZES)
        self.assertEqual(small, [])
        self.assertGreater(seen, 1000)
        self.check_what_was_asked_for()

    def test_keys_lead_from_slide_to_slide(self) -> None:
        from selenium.webdriver.common.keys import Keys

        self.open_slides()
        body = self.browser.find_element("css selector", "body")
        ids = self.run_script("return slides.map(s => s.id)")
        for key, at in ((Keys.ARROW_RIGHT, 1), (Keys.PAGE_DOWN, 2), (Keys.ARROW_LEFT, 1), (Keys.END, len(ids) - 1), (Keys.HOME, 0)):
            body.send_keys(key)
            self.assertEqual(self.run_script("return location.hash.slice(1)"), ids[at])
            self.wait_for(lambda at=at: abs(self.run_script("return slides[arguments[0]].getBoundingClientRect().top", at)) < 30)

    def test_a_class_predicts_before_it_sees(self) -> None:
        from selenium.webdriver.common.keys import Keys

        self.open_slides(f"?only={COPYING.name}")
        self.assertEqual(self.run_script("return slides.map(s => s.id)"), [f"{COPYING.name}.1", f"{COPYING.name}.2"])
        body, shown = self.browser.find_element("css selector", "body"), []
        for _ in range(5):
            shown.append(self.run_script("return [...document.querySelectorAll('details')].map(fold => fold.open)"))
            body.send_keys(Keys.ARROW_RIGHT)
        predicted, change, came = range(3)  # the change is folded, too, where an exercise asks for it
        opened = [[fold for fold, is_open in enumerate(folds) if is_open] for folds in shown]
        self.assertEqual(opened, [[], [predicted], [predicted], [predicted, change], [predicted, change, came]])

    def test_slides_without_a_browser_are_a_page(self) -> None:
        folder = self.site / "unprinted"
        run = subprocess.run([sys.executable, "-m", "tools.site.slides", self.site, folder], capture_output=True, text=True,
                             env={**os.environ, "PATH": str(folder)})
        self.assertEqual(run.returncode, 77)
        self.assertIn("apt-get install chromium", run.stderr)
        self.assertTrue((folder / "slides.html").is_file())

    def printed(self, script: str, *arguments) -> str:
        run = subprocess.run([sys.executable, "-m", f"tools.site.{script}", self.site, *arguments], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return run.stdout

    def test_slides_print(self) -> None:
        folder = self.site / "printed"
        self.assertIn(f"{COPYING.name}.pdf: 2 slides", self.printed("slides", folder, COPYING.number))
        pdf = (folder / f"{COPYING.name}.pdf").read_bytes()
        self.assertRegex(pdf, rb"/MediaBox \[0 0 960 540\]")  # points: 1280 x 720 pixels
        self.assertEqual((folder / "slides.html").read_text(encoding="utf-8"), self.text("slides"))
        run = subprocess.run([sys.executable, "-m", "tools.site.slides", self.site, folder, "777"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn("There is no stage '777'", run.stderr)

    # ---- hand-outs ---------------------------------------------------------------------------------------------------
    def test_hand_outs_have_answers_or_not(self) -> None:
        self.addCleanup(self.browser.execute_cdp_cmd, "Emulation.setEmulatedMedia", {"media": ""})
        seen = ("return [...document.querySelectorAll('div.body details')].filter(fold => fold.checkVisibility()).map(fold => { const inside = document.createRange();"
                "inside.setStartAfter(fold.querySelector('summary')); inside.setEndAfter(fold.lastChild); return inside.getClientRects().length > 0; })")
        for page in (self.site / COPYING.directory / "README.html", self.site / "course" / "exercises" / EXERCISES[0].name / "task.html"):
            for query, shown in (("", True), ("?questions", False)):
                self.browser.get("about:blank")
                self.open(page.as_uri() + query)
                self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
                folds = self.run_script(seen)
                self.assertGreaterEqual(len(folds), 3)
                self.assertEqual(set(folds), {shown}, (page, query))

    def test_the_answers_of_exercises_are_a_hand_out_for_instructors(self) -> None:
        from tools.site import handouts

        students, instructors = (set(handouts.pages(Path(self.site), answers)) for answers in (False, True))
        self.assertEqual(instructors - students, {"answers"})
        self.assertLessEqual({exercise.name for exercise in EXERCISES} | set(rungs.names()), students)


if __name__ == "__main__":
    browser.main()
