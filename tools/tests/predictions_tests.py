"""A prediction is committed before its rung is measured, and never edited: every stage.cu against docs/predictions.csv, and that against the
commits it names and against what history says was measured first, where the clone has it."""
from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
import unittest

from tools import history, results
from tools.evidence import first_rows
from tools.paths import ROOT
from tools.plots import figure, predictions
from tools.site import prose

LISTED = first_rows.listed()
HALVES = results.table(first_rows.HALVES)
NOTE = re.compile(r"^<!-- committed .*?<!-- /committed -->\n?", re.M | re.S)
PREDICTED = re.compile(r"^\*\*What we predict\.\*\*.*?(?=^\*\*|^## |\Z)", re.M | re.S)


def prediction_in(stage: str) -> str:
    """What a stage.cu says behind .prediction, its pieces joined."""
    pieces = re.search(r'\.prediction\s*=\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', stage)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', pieces[1])) if pieces else ""


def told_in(chapter: str) -> str:
    """What a chapter says under "What we predict", without the ends of links, line breaks, and the note that tools make of what was committed."""
    found = PREDICTED.search(chapter)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", prose.INLINE.sub("", NOTE.sub("", found[0] if found else ""))).split())


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def renamed(text: str, names: str) -> str:
    """The text with names of rungs that have changed since: `00a=p01 00b=p02`."""
    for old, new in (pair.split("=") for pair in names.split()):
        text = re.sub(rf"\b{old}\b", new, text)
    return text


class Predictions(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        described = subprocess.run([os.environ["LADDER"], "describe", "--json", "-"], capture_output=True, text=True, check=True)
        described_stages = json.loads(described.stdout)
        cls.stages = {stage["stage"]: stage["prediction"] for stage in described_stages}
        cls.chapters = {stage["stage"]: f"{stage['directory']}/README.md" for stage in described_stages}

    def chapter(self, name: str) -> str:
        return (ROOT / self.chapters[name]).read_text(encoding="utf-8")

    def test_each_rung_predicts_what_the_list_holds_and_none_is_measured_without_it(self) -> None:
        measured = {row["stage"] for row in results.table("h200.csv")} & self.stages.keys()
        self.assertEqual(measured - LISTED.keys(), set(), "measured, and not in docs/predictions.csv")
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                self.assertIn(name, self.stages)
                self.assertEqual(digest(self.stages[name]), row["sha256"], "the prediction was edited")
                self.assertEqual(row["verdict"] == "none", bool(re.match("Known from|Written after", self.stages[name])))
                self.assertTrue(row["predicted"] or row["verdict"] == "none")
                self.assertIn(row["trial"], ("", "relative", "itself"), "the page counts three kinds")

    def test_no_number_inside_a_prediction_moves(self) -> None:
        for name in LISTED:
            with self.subTest(rung=name):
                self.assertEqual([match[1] for match in prose.INLINE.finditer(PREDICTED.search(self.chapter(name))[0])], [], "a formula under What we predict")

    def test_a_chapter_tells_its_prediction_in_the_words_that_it_had_or_says_that_it_does_not(self) -> None:
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                text = self.chapter(name)
                self.assertEqual(digest(told_in(text)), row["told_sha256"], "reworded under What we predict")
                self.assertEqual(f"<!-- committed {name} -->" in PREDICTED.search(text)[0], not row["told"] and row["verdict"] != "none", "words of after the measurement")
                committed = history.file(row["told"], self.chapters[name]) if row["told"] else None
                if committed is not None:
                    self.assertEqual(digest(told_in(committed)), row["told_sha256"], f"{row['told']} has other words")

    def test_the_page_counts_every_half(self) -> None:
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                mine = [half for half in HALVES if half["stage"] == name]
                self.assertTrue(mine, "no formula of what came")
                if row["verdict"] in ("hit", "missed"):
                    self.assertEqual((row["verdict"], row["way"]), first_rows.verdict(mine))
                for half in mine:
                    self.assertEqual(bool(half["low"]), row["verdict"] in ("hit", "missed", ""), half)
                    self.assertTrue(not half["formula"] or prose.compares_two_runs(half["formula"]) == "" or not half["came"], half)

    def test_a_verdict_needs_all_halves_and_the_first_that_failed_decides(self) -> None:
        def half(low: str, high: str, came: str, of: str = "") -> dict[str, str]:
            return {"low": low, "high": high, "came": came, "of": of}
        hit, slow, fast, untimed = half("1", "1.1", "1.05"), half("0.99", "1.01", "0.97"), half("1.31", "1.31", "1.32"), half("1", "2", "")
        self.assertEqual(first_rows.verdict([hit, untimed]), ("hit", ""))
        self.assertEqual(first_rows.verdict([hit, slow, fast]), ("missed", "slower"))
        self.assertEqual(first_rows.verdict([fast]), ("missed", "faster"))
        self.assertEqual(first_rows.verdict([half("1", "1.1", "1.2", "batch 8, over d06, time")]), ("missed", "slower"))
        self.assertEqual(first_rows.verdict([half("1.01", "1.01", "1.0149")]), ("hit", ""))

    def test_the_picture_is_of_these_numbers(self) -> None:
        self.assertTrue(figure.is_current(figure.FIGURES / "h200-predictions.svg", predictions.collect(None, [])), "make plots")


class History(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        if not history.is_here():
            raise unittest.SkipTest("the history is not here")
        Predictions.setUpClass()

    def test_each_was_committed_in_these_words(self) -> None:
        for name, row in LISTED.items():
            if row["predicted"]:
                with self.subTest(rung=name):
                    text = history.file(row["predicted"], row["path"]) or ""
                    said = told_in(text).removeprefix("**What we predict.** ") if row["path"].endswith(".md") else prediction_in(text)
                    self.assertEqual(renamed(said, row["names"]), Predictions.stages[name])

    def test_each_was_committed_before_it_was_measured(self) -> None:
        """Before the commit that brought its first row, and no later than the commit whose program was timed."""
        for name, row in LISTED.items():
            if row["verdict"] == "none":
                continue
            with self.subTest(rung=name):
                if not row["measured"]:  # its rows come with this commit
                    self.assertEqual(self.programs(name, "HEAD"), set(), "python3 -m tools.evidence.first_rows --write")
                    continue
                self.assertTrue(history.is_before(row["predicted"], row["measured"]), "measured first")
                if row["told"]:
                    self.assertTrue(history.is_before(row["told"], row["measured"]), "told afterwards")
                for program in self.programs(name, row["measured"]):
                    if history.has(program):
                        self.assertTrue(history.is_before(row["predicted"], program) or history.git("rev-parse", f"{program}^{{commit}}") == history.git("rev-parse", f"{row['predicted']}^{{commit}}"),
                                        f"the program that was timed, {program}, does not have the prediction")

    def programs(self, name: str, measured: str) -> set[str]:
        """Whose program the first rows of a rung were timed with."""
        olds = {name, *(old for old, new in first_rows.names().items() if new == name)}
        found = set()
        for card in first_rows.CARDS:
            lines = (history.file(measured, f"docs/results/{card}") or "").splitlines()
            head = lines[0].split(",") if lines else []
            found |= {line.split(",")[head.index("commit") - len(head)] for line in lines[1:] if line.partition(",")[0] in olds}
        for file, (column, _) in results.APART.items():  # of decoding, whose rows no card's file has
            rows = csv.DictReader((history.file(measured, f"docs/results/{file}") or "").splitlines())
            found |= {row["commit"] for row in rows if row[column].partition(" ")[0] in olds}
        return found

    @unittest.skipUnless(os.environ.get("LADDER_WHOLE"), "minutes; LADDER_WHOLE=1 asks for it")
    def test_what_came_is_what_history_says_was_measured_first(self) -> None:
        rungs, halves = results.table(first_rows.LIST), results.table(first_rows.HALVES)
        first_rows.found(rungs, halves)
        self.assertEqual((rungs, halves), (results.table(first_rows.LIST), results.table(first_rows.HALVES)))


if __name__ == "__main__":
    unittest.main()
