"""How the house is kept: who may include whom, and who may name a rung.   python3 -m tools.tests.house_tests PATH_TO_LADDER"""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path
from typing import Iterator

from tools.paths import ROOT
from tools.tests.rungs import Rungs

HARNESS = ROOT / "harness"
TESTS = (HARNESS / "tests", ROOT / "tools" / "tests")
LADDER = ""


def included_rooms(source: str) -> Iterator[str]:
    """Rooms of harness/ whose headers a file includes."""
    for path in re.findall(r'^\s*#\s*include\s+"harness/([^"]+)"', source, re.MULTILINE):
        if "/" in path:
            yield path.split("/")[0]


def later_rooms(rooms: list[str], room: str, source: str) -> set[str]:
    """Those after its own room that a file of `room` includes, or that are no rooms."""
    return {other for other in included_rooms(source) if other not in rooms[: rooms.index(room) + 1]}


class Rooms(unittest.TestCase):
    def setUp(self) -> None:
        listed = re.search(r"set\(rooms ([a-z_ ]+)\)", (HARNESS / "CMakeLists.txt").read_text())
        assert listed
        self.rooms = listed[1].split()

    def test_a_file_includes_nothing_of_a_later_room(self) -> None:
        seen = 0
        for room in self.rooms:
            for file in sorted((HARNESS / room).iterdir()):
                if file.suffix in (".hpp", ".cpp", ".cu", ".cuh"):
                    seen += 1
                    with self.subTest(f"{room}/{file.name}"):
                        self.assertEqual(later_rooms(self.rooms, room, file.read_text()), set())
        self.assertGreater(seen, len(self.rooms))

    def test_an_include_of_a_later_room_is_seen(self) -> None:
        rooms = ["low", "middle", "high"]
        source = '#include <map>\n#include "harness/main.hpp"\n#include "harness/low/a.hpp"\n  # include "harness/high/b.hpp"\n'
        self.assertEqual(later_rooms(rooms, "middle", source), {"high"})
        self.assertEqual(later_rooms(rooms, "high", source), set())
        self.assertEqual(later_rooms(rooms, "low", '#include "harness/cellar/a.hpp"\n'), {"cellar"})


class Python(unittest.TestCase):
    def test_it_is_one_package(self) -> None:
        """What is elsewhere in the harness runs as a process of its own: peers, and stand-ins of tests."""
        elsewhere = {path.parent.relative_to(HARNESS) for path in HARNESS.rglob("*.py")}
        self.assertEqual(elsewhere, {Path("peers"), Path("tests/fakes")})
        for file in (ROOT / "tools").rglob("*.py"):
            self.assertNotRegex(file.read_text(), r"(?m)^ *sys\.path", str(file))


class Names(unittest.TestCase):
    def test_no_test_outside_a_rungs_directory_names_a_rung(self) -> None:
        names = re.compile(r"\b(" + "|".join(re.escape(rung["stage"]) for rung in Rungs(LADDER).all) + r")\b")
        files = [file for folder in TESTS for file in sorted(folder.rglob("*")) if file.is_file() and "__pycache__" not in file.parts]
        self.assertIn(Path(__file__).resolve(), files)
        for file in files:
            with self.subTest(str(file.relative_to(ROOT))):
                lines = [f"{number}: {line.strip()}" for number, line in enumerate(file.read_text().splitlines(), 1)
                         if names.search(line)]
                self.assertEqual(lines, [])


if __name__ == "__main__":
    LADDER = sys.argv.pop(1)
    unittest.main()
