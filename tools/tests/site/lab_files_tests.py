"""Files in the benchmark lab: a reader's own is read by the columns of schema.json, and stands beside the recorded
ones; the download holds what is shown."""
from __future__ import annotations

import csv
import io
from pathlib import Path
from urllib.parse import unquote

from tools import results
from tools.tests.site import browser
from tools.tests.site.lab import EVERYBODY, GPU, LabCase, RECORDED, ROWS, SWEEP
from tools.tests.site.ladder import COPYING, is_there, STAGES

FIRST, NEXT = STAGES[0], COPYING.name

# As tools/evidence/traffic.py writes it. Invented.
TRAFFIC = ",".join(results.columns("traffic")) + f"""
{FIRST},card,1,2,512,128,0,dram__bytes_read.sum,3000000,measured,abc,2000-01-01
{FIRST},card,1,2,1024,128,0,dram__bytes_read.sum,12000000,measured,abc,2000-01-01
{FIRST},card,1,2,2048,128,0,dram__bytes_read.sum,48000000,measured,abc,2000-01-01
{NEXT},card,32,16,512,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
{NEXT},card,16,16,1024,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
{NEXT},card,8,16,2048,128,0,dram__bytes_read.sum,64000000,measured,abc,2000-01-01
{NEXT},card,32,16,512,128,0,sm__cycles.sum,7,measured,abc,2000-01-01
{FIRST},,1,1,512,128,0,emulator.gmem_bytes_read,5,emulator,abc,2000-01-01
{FIRST},card,1,2,512,128,0,cuda.memory_used_bytes,7000000,measured,abc,2000-01-01
"""


def recorded_text() -> str:
    """A recorded file, without rows of rungs that are gone."""
    head, *lines = RECORDED[0].read_text(encoding="utf-8").splitlines()
    return "".join(f"{line}\n" for line in [head, *(line for line in lines if is_there(next(csv.DictReader([head, line]))))])


class Files(LabCase):
    def test_the_download_holds_the_visible_rows_as_they_were_recorded(self) -> None:
        lines = {line for path in RECORDED for line in path.read_text(encoding="utf-8").splitlines()}
        for state in ((), (("shape", SWEEP), *EVERYBODY), (("regime", "burst"), *EVERYBODY)):
            seen = self.turn_to(*state)
            kind, _, text = unquote(seen["address"]).partition(",")
            self.assertEqual(kind, "data:text/csv;charset=utf-8")
            self.assertTrue(set(text.splitlines()) <= lines)
            rows = list(csv.DictReader(io.StringIO(text)))
            self.assertEqual(sorted((row["stage"], row["n"]) for row in rows),
                             sorted((mark["stage"], mark["n"]) for mark in seen["marks"]))
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(self.folder)})
        self.element(".lab-download").click()
        file = self.folder / "flash-ladder-tflops.csv"
        self.wait_for(lambda: file.exists() and file.stat().st_size)
        self.assertEqual(file.read_text(encoding="utf-8"), text)
        results.read(file)

    def write(self, text: str | bytes, name: str = "mine.csv") -> Path:
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def hand_over(self, text: str | bytes) -> dict:
        old = self.look()["status"]
        self.element(".lab-own input").send_keys(str(self.write(text)))
        self.wait_for(lambda: self.look()["status"] != old)
        return self.look()

    RECORDED_TEXT = recorded_text()

    def test_an_own_file_stands_beside_the_recorded_ones(self) -> None:
        mine = self.RECORDED_TEXT.replace(GPU, "My <b>Card</b>")
        alone = self.look()
        seen = self.hand_over(mine)
        self.assertIn("mine.csv: ", seen["status"])
        self.assertEqual(len(seen["marks"]), 2 * len(alone["marks"]))
        self.assertEqual({mark["gpu"] for mark in seen["marks"]}, {GPU, "My <b>Card</b> (mine.csv)"})
        self.assertEqual([line[1] for line in seen["table"]], [mark["gpu"] for mark in seen["marks"]])
        self.choose("gpu", "My <b>Card</b> (mine.csv)")
        self.assertEqual([(mark["stage"], mark["value"]) for mark in self.look()["marks"]],
                         [(mark["stage"], mark["value"]) for mark in alone["marks"]])
        self.element(".lab-status button").click()
        self.assertEqual(self.look()["marks"], alone["marks"])

    def test_what_was_not_measured_says_so(self) -> None:
        """A row copied from the write-up, and ceilings that name neither inputs nor type."""
        rows = [{**row, "gpu": "Other"} for row in csv.DictReader(io.StringIO(self.RECORDED_TEXT)) if row["kind"] == "stage"]
        rows = [{**row, "source": "write-up"} for row in rows] + [{**rows[0], "kind": "ceiling", "stage": "gemm", "inputs": "", "dtype": ""}]
        text = io.StringIO()
        writer = csv.DictWriter(text, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        seen = self.hand_over(text.getvalue())
        self.assertEqual({mark["gpu"] for mark in seen["marks"]}, {GPU, "Other (mine.csv)", "Other (mine.csv, write-up)"})
        self.assertEqual([mark["gpu"] for mark in seen["marks"] if mark["stage"] == "gemm"], ["Other (mine.csv)"])
        types = {row["dtype"] for row in ROWS} - {""}  # a row without one adds none to choose
        self.assertEqual("dtype" in seen["hidden"], len(types) == 1)

    def test_a_file_of_the_same_card_is_told_apart_and_can_be_dropped(self) -> None:
        self.run_script("const files = new DataTransfer(); files.items.add(new File([arguments[0]], 'again.csv'));"
                        "document.querySelector('.lab-chart').dispatchEvent(new DragEvent('drop', "
                        "{ dataTransfer: files, bubbles: true, cancelable: true }))", self.RECORDED_TEXT)
        self.wait_for(lambda: "again.csv" in self.look()["status"])
        self.assertEqual({mark["gpu"] for mark in self.look()["marks"]}, {GPU, f"{GPU} (again.csv)"})

    def test_a_broken_file_is_refused_with_its_place_and_changes_nothing(self) -> None:
        before = self.look()["marks"]
        lines = self.RECORDED_TEXT.splitlines()
        number, line = next((number, line) for number, line in enumerate(lines, 1) if line.startswith(f"{NEXT},"))
        for column, cell in (("kind", "rung"), ("n", "many"), ("tflops", "nan"), ("causal", "2")):
            cells = line.split(",")
            cells[results.columns("results").index(column)] = cell
            broken = self.RECORDED_TEXT.replace(line, ",".join(cells))
            self.assertIn(f"Refused. mine.csv:{number}: cannot read {column} '{cell}'", self.hand_over(broken)["status"])
        self.assertIn("no column kind", self.hand_over(self.RECORDED_TEXT.replace("kind", "sort", 1))["status"])
        self.assertIn("mine.csv: not a text file", self.hand_over(b"\xff\xfe\x00")["status"])
        self.assertEqual(self.look()["marks"], before)

    def test_bytes_a_head_over_n(self) -> None:
        """A traffic file: shapes that differ between rungs, compared by the head."""
        seen = self.hand_over(TRAFFIC)
        self.assertEqual(seen["options"]["metric"], "dram__bytes_read.sum")
        self.assertEqual(set(seen["hidden"]), {"regime", "inputs", "dtype", "problem"})  # and not x: bytes are first shown over N
        self.assertEqual(seen["options"]["shape"], "all,128")
        self.assertIn("card (mine.csv)", {mark["gpu"] for mark in seen["marks"]})
        seen = self.turn_to(("metric", "dram__bytes_read.sum"), ("gpu", "card (mine.csv)"))
        self.assertEqual({(mark["stage"], mark["n"]): float(mark["value"]) for mark in seen["marks"]},
                         {(FIRST, "512"): 3e6 / 2, (FIRST, "1024"): 12e6 / 2, (FIRST, "2048"): 48e6 / 2,
                          (NEXT, "512"): 64e6 / 512, (NEXT, "1024"): 64e6 / 256, (NEXT, "2048"): 64e6 / 128})
        self.assertEqual(seen["table"], [[FIRST, "1.500 MB", "6.000 MB", "24.00 MB"],
                                         [NEXT, "125.0 kB", "250.0 kB", "500.0 kB"]])
        self.assertEqual(seen["options"]["y"], "log")
        self.check_places(seen, True)
        seen = self.turn_to(("metric", "cuda.memory_used_bytes"), ("gpu", "card (mine.csv)"), ("shape", "512,128"))
        self.assertEqual([float(mark["value"]) for mark in seen["marks"]], [7e6])  # not by the head: at one shape throughout
        self.assertEqual(unquote(seen["address"]).partition(",")[2],
                         f"{TRAFFIC.splitlines()[0]}\n{TRAFFIC.splitlines()[-1]}\n")
        seen = self.turn_to(("metric", "emulator.gmem_bytes_read"), ("gpu", "emulator (mine.csv)"))
        self.assertEqual([float(mark["value"]) for mark in seen["marks"]], [5])
        self.assertNotIn("sm__cycles.sum", [option.get_attribute("value") for option in
                                            self.browser.find_elements("css selector", "select[name=metric] option")])

    def test_what_reads_0_is_off_a_logarithmic_axis_and_in_the_table(self) -> None:
        one = [line for line in TRAFFIC.splitlines() if not line.startswith(NEXT)]
        mine = ("metric", "dram__bytes_read.sum"), ("gpu", "card (mine.csv)")
        self.hand_over("\n".join(one).replace(",12000000,", ",0,"))
        for axis, drawn, pieces in (("log", ["512", "2048"], 2), ("linear", ["512", "1024", "2048"], 1)):
            seen = self.turn_to(*mine, ("y", axis))
            self.assertEqual([mark["n"] for mark in seen["marks"]], drawn)
            self.assertEqual(seen["table"], [[FIRST, "1.500 MB", "0 B", "24.00 MB"]])
            self.assertEqual(unquote(seen["address"]).count("dram__bytes_read.sum"), 3)
            line = self.element(".series .line").get_attribute("d")  # it does not run over what it leaves out
            self.assertEqual((line.count("M"), line.count("L")), (pieces, len(drawn) - pieces))
            self.assertEqual(f"left out here and written in the table is 1 value of {FIRST}." in seen["caption"], axis == "log")
        self.element(".lab-status button").click()
        self.hand_over("\n".join(line.replace(",3000000,", ",0,") for line in one))
        seen = self.turn_to(*mine, ("shape", "512,128"), ("y", "log"))
        self.assertEqual((seen["marks"], [line[1] for line in seen["table"]]), ([], ["0 B"]))
        self.assertIn("All of it is 0", self.element(".lab-empty").text)
        self.assertTrue(self.element(".lab-table table").is_displayed())
        self.choose("y", "linear")
        self.assertEqual([mark["value"] for mark in self.look()["marks"]], ["0"])


if __name__ == "__main__":
    browser.main()
