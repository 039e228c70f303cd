"""A prediction is committed before its rung is measured, and never edited: every stage.cu against docs/predictions.csv, and that against the
commits it names, where the clone has them."""
from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import subprocess
import unittest

from tools.paths import ROOT
from tools.plots import figure, predictions
from tools.site import prose

LISTED = {row["stage"]: row for row in csv.DictReader((ROOT / "docs" / "predictions.csv").open(encoding="utf-8", newline=""))}
VERDICTS = {"hit": "hit", "missed": "**missed**", "vague": "too vague to miss", "none": "no prediction"}


def git(*arguments: str) -> str | None:
    """What git prints; None where it fails: no git, no repository, a shallow clone."""
    try:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def prediction_in(stage: str) -> str:
    """What a stage.cu says behind .prediction, its pieces joined."""
    pieces = re.search(r'\.prediction\s*=\s*((?:"(?:[^"\\]|\\.)*"\s*)+)', stage)
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', pieces[1])) if pieces else ""


def told_in(chapter: str) -> str:
    """What a chapter says under "What we predict", without the numbers that tools renew, the ends of links, and line breaks."""
    found = re.search(r"^\*\*What we predict\.\*\*.*?(?=^\*\*|^## |\Z)", chapter, re.M | re.S)
    return " ".join(re.sub(r"\]\([^)]*\)", "]", prose.INLINE.sub("", found[0] if found else "")).split())


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

    def test_each_rung_predicts_what_the_list_holds_and_none_is_measured_without_it(self) -> None:
        with (ROOT / "docs" / "results" / "h200.csv").open(encoding="utf-8", newline="") as file:
            measured = {row["stage"] for row in csv.DictReader(file)} & self.stages.keys()
        self.assertEqual(measured - LISTED.keys(), set(), "measured, and not in docs/predictions.csv")
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                self.assertIn(name, self.stages)
                self.assertEqual(digest(self.stages[name]), row["sha256"], "the prediction was edited")
                self.assertEqual(row["verdict"] == "none", bool(re.match("Known from|Written after", self.stages[name])))
                self.assertTrue(row["predicted"] or row["verdict"] == "none")

    def test_each_chapter_tells_its_prediction_in_the_words_that_it_had(self) -> None:
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                path = self.chapters[name]
                self.assertEqual(digest(told_in((ROOT / path).read_text(encoding="utf-8"))), row["told_sha256"], "reworded under What we predict")
                committed = git("show", f"{row['told']}:{path}")
                if committed is not None:
                    self.assertEqual(digest(told_in(committed)), row["told_sha256"], f"{row['told']} has other words")

    def test_each_was_committed_in_these_words_and_before_it_was_measured(self) -> None:
        looked = 0
        for name, row in LISTED.items():
            stage = git("show", f"{row['predicted']}:{row['path']}") if row["predicted"] else None
            if stage is None or git("cat-file", "-e", row["measured"]) is None:
                continue
            looked += 1
            with self.subTest(rung=name):
                self.assertEqual(renamed(prediction_in(stage), row["names"]), self.stages[name])
                if row["verdict"] != "none":
                    self.assertIsNotNone(git("merge-base", "--is-ancestor", row["predicted"], row["measured"]), "measured first")
        if not looked:
            self.skipTest("the history is not here")

    def test_the_page_says_what_the_list_says(self) -> None:
        page = (ROOT / "docs" / "predictions.md").read_text(encoding="utf-8").partition("<!-- numbers")[0]
        for name, row in LISTED.items():
            with self.subTest(rung=name):
                cells = [cell.strip() for line in page.splitlines() if line.startswith(f"| [{name}]") for cell in line.split("|")]
                self.assertEqual(len(cells), 8, "one line of six cells")
                self.assertTrue(cells[4].startswith(VERDICTS[row["verdict"]]), cells[4])
                self.assertEqual("trial" in cells[4], row["trial"] != "" and row["verdict"] != "none", cells[4])
                self.assertEqual([cell.strip("`") for cell in cells[5:7]], [row["predicted"], row["measured"]])

    def test_a_verdict_is_what_the_numbers_say(self) -> None:
        judged = {stage: (verdict, low <= came <= high) for stage, verdict, low, high, came in predictions.predicted()}
        self.assertEqual(judged.keys(), {name for name, row in LISTED.items() if row["verdict"] in ("hit", "missed")})
        for stage, (verdict, within) in judged.items():
            self.assertEqual(verdict, "hit" if within else "missed", stage)

    def test_the_picture_is_of_these_numbers(self) -> None:
        self.assertTrue(figure.is_current(figure.FIGURES / "h200-predictions.svg", predictions.collect(None, [], None)), "make plots")


if __name__ == "__main__":
    unittest.main()
