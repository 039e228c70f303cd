"""The `ladder` program from outside: exit codes, messages, and what stands on which stream.

Usage: cli_tests.py PATH_TO_LADDER [unittest arguments]
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
LADDER = ""
DONE, FAILED, USAGE, CANNOT_RUN_HERE, INTERRUPTED = 0, 1, 2, 77, 130
GIGANTIC = str(2**31 - 128)
HANG_S = 1200  # nothing here takes a tenth of it on the slowest laptop; a limit against hanging for ever


def ladder(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True} | options
    return subprocess.run([LADDER, *arguments], text=True, timeout=HANG_S, **options)


class Usage(unittest.TestCase):
    """What the user got wrong: exit code 2, the message on stderr, nothing on stdout."""

    def refused(self, arguments: str, *parts: str) -> None:
        with self.subTest(arguments):
            result = ladder(*arguments.split())
            self.assertEqual(result.returncode, USAGE, result.stderr)
            self.assertEqual(result.stdout, "")
            for part in parts:
                self.assertIn(part, result.stderr)

    def test_stage(self) -> None:
        self.refused("check kvpip", "no stage 'kvpip'", "Nearest: 03_kvpipe", "00_naive")
        self.refused("explain 42", "no stage '42'")
        self.refused("compare 02", "takes two stages")
        self.refused("03", "ladder check 03")

    def test_verb_and_flags(self) -> None:
        self.refused("chek", "no verb 'chek'", "Did you mean check?")
        self.refused("check --sed 3", "no flag --sed", "Did you mean --seed?")
        self.refused("check --on tpu", "auto, cpu or gpu")
        self.refused("check --inputs peeky", "Did you mean peaky?", "one_hot")

    def test_shape(self) -> None:
        self.refused("check 02 --n 1000", "02_swizzle needs N to be a multiple of 128", "N=1000 is not", "896, 1024")
        self.refused("check 02 --n 1", "Nearest: 128.")
        self.refused("check --n 0", "between 1 and")
        self.refused("check --n -128", "-128 is not")
        self.refused("check --n 1e3", "whole number")
        self.refused("check --n 9999999999999999999999", "between 1 and")
        self.refused("check --heads 65536", "at most 65535")
        self.refused("check 03 --d 64", "head dimension of 128", "ladder check 00 --d 64")
        self.refused("check 00 --d 512", "at most 256")
        self.refused("check 00b --causal", "00b_tiled is dense only")
        self.refused("check 01 --causal", "01_base is dense only", "Stages that do causal: 00_naive")
        self.refused("explain 03 --n 100", "multiple of 128")

    def test_files_are_tried_before_the_work(self) -> None:
        # With the work before it, each of these would take hours.
        self.refused("check --on cpu --n 8192 --json /no/such/directory/x.json", "/no/such/directory", "No such file")
        self.refused("check --on cpu --n 8192 --json /", "Is a directory")
        self.refused("explain 03 --trace /no/such/x.json", "No such file")


class Check(unittest.TestCase):
    def test_json_alone_on_stdout(self) -> None:
        result = ladder("check", "03", "06", "--on", "cpu", "--json", "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("03_kvpipe", result.stderr)  # the table
        rows = json.loads(result.stdout)
        self.assertEqual({row["stage"] for row in rows}, {"03_kvpipe", "06_batched"})
        self.assertGreater(len(rows), 2 * 9)
        self.assertEqual(sum(row["stage"] == "03_kvpipe" for row in rows), len(rows) / 2)
        for row in rows:
            self.assertTrue(row["ok"])
            self.assertLessEqual(row["max_err"], row["tolerance"])
            self.assertEqual(row["backend"], "emulator")
        normal = next(row for row in rows if row["inputs"] == "normal" and row["stage"] == "03_kvpipe")
        self.assertEqual(normal["n"], 512)
        counters = normal["counters"]
        self.assertEqual(counters["smem_wavefronts"], counters["smem_wavefronts_ideal"])
        self.assertEqual(counters["mma"], 32768)
        self.assertEqual(counters["gmem_bytes_written"], 512 * 128 * 2)

    def test_json_file_and_table(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "check.json")
            result = ladder("check", "kvpipe", "--on", "cpu", "--n", "256", "--inputs", "normal", "--json", str(path))
            self.assertEqual(result.returncode, DONE, result.stderr)
            self.assertIn("right", result.stdout)
            self.assertNotIn("\x1b", result.stdout)  # colour is for terminals
            self.assertEqual(len(json.loads(path.read_text())), 1)

    def test_the_same_problem_gives_the_same_result(self) -> None:
        arguments = ("check", "04", "--on", "cpu", "--n", "256", "--inputs", "peaky", "--seed", "5", "--json", "-")
        first, second = (json.loads(ladder(*arguments).stdout)[0] for _ in range(2))
        del first["seconds"], second["seconds"]
        self.assertEqual(first, second)

    def test_ablations(self) -> None:
        result = ladder("check", "02", "--on", "cpu", "--n", "256", "--inputs", "normal", "--ablate", "--json", "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertGreaterEqual(len(json.loads(result.stdout)), 2)

    def test_several_shapes(self) -> None:
        result = ladder("--n", "128,384", "check", "01", "--on", "cpu", "--batch", "2", "--inputs", "normal", "--json", "-")
        self.assertEqual([(row["n"], row["batch"]) for row in json.loads(result.stdout)], [(128, 2), (384, 2)])

    def test_any_shape_on_00(self) -> None:
        result = ladder("check", "0", "--on", "cpu", "--n", "100", "--d", "33")
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)

    def test_short_work_shows_no_progress(self) -> None:
        self.assertEqual(ladder("check", "03", "--on", "cpu", "--n", "128", "--inputs", "normal").stderr, "")

    def test_full_disk(self) -> None:
        result = ladder("check", "06", "--on", "cpu", "--n", "128", "--json", "/dev/full")
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("No space left on device", result.stderr)
        with open("/dev/full", "w") as full:
            result = ladder("check", "06", "--on", "cpu", "--n", "128", capture_output=False, stdout=full,
                            stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("No space left on device", result.stderr)

    def test_progress_and_an_interrupt_that_keeps_the_results_so_far(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "check.json")
            process = subprocess.Popen([LADDER, "check", "03", "--on", "cpu", "--n", ",".join(map(str, range(1024, 3584, 128))), "--inputs", "all",
                                        "--json", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            # The first line, after two seconds of work: some steps are done, and minutes are left.
            self.addCleanup(process.kill)
            progress = next(line for line in process.stderr if " % " in line)
            self.assertRegex(progress, r"\d+ %  03_kvpipe, emulated, .*  \d+ s left")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=HANG_S)
            self.assertEqual(process.returncode, INTERRUPTED)
            rows = json.loads(path.read_text())
            self.assertGreater(len(rows), 0)
            self.assertIn("Ctrl-C again ends at once", stderr)
            said = re.search(r"Interrupted: (\d+) of (\d+) launches were done", stderr)
            assert said, stderr
            self.assertTrue(0 < int(said[1]) < int(said[2]), stderr)


class Compare(unittest.TestCase):
    def test_json_has_what_the_emulator_counted(self) -> None:
        arguments = ("--on", "cpu", "--n", "256", "--json")
        result = ladder("compare", "02", "03", *arguments, "-")
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("B / A", result.stderr)  # the table
        rows = json.loads(result.stdout)
        self.assertEqual([row["stage"] for row in rows], ["02_swizzle", "03_kvpipe"])
        checked = json.loads(ladder("check", "02", "03", "--inputs", "normal", *arguments, "-").stdout)
        for row in rows + checked:
            del row["seconds"]
        self.assertEqual(rows, checked)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "compare.json")
            self.assertEqual(ladder("compare", "02", "03", *arguments, str(path)).returncode, DONE)
            self.assertEqual(len(json.loads(path.read_text())), 2)
        self.assertEqual(ladder("compare", "02", "03", *arguments, "/dev/full").returncode, FAILED)

    def test_csv_without_timings_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "compare.csv")
            result = ladder("compare", "02", "03", "--on", "cpu", "--n", "256", "--csv", str(path))
            self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
            self.assertEqual(result.stdout, "")
            for part in ("--csv holds timings", "--on cpu asks for the emulator alone", "--json FILE"):
                self.assertIn(part, result.stderr)
            self.assertFalse(path.exists())


class Screen(unittest.TestCase):
    """What a terminal is given: its width, and colours for those who want them."""

    def on_terminal(self, *arguments: str, columns: int = 80, until: bytes = b"", **environment: str) -> bytes:
        """What a terminal of that width is sent: all of it, or the beginning as far as `until`."""
        terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        known = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen([LADDER, *arguments], stdin=subprocess.DEVNULL, stdout=end, stderr=end,
                                   env={**known, "TERM": "xterm", **environment})
        os.close(end)
        text = b""
        with open(terminal, "rb", buffering=0) as stream:
            try:
                while (part := stream.read(4096)) and not (until and until in text):
                    text += part
            except OSError:  # the other end is closed
                pass
            process.kill() if until else None
            process.wait(HANG_S)
        return text

    def test_tables_fit_80_columns_and_say_what_they_leave_out(self) -> None:
        for arguments in (("--n", "256"), ("explain", "00ca", "--n", "256"), ("explain", "13", "--n", "256"),
                          ("compare", "02", "03", "--n", "256"), ("bench", "02", "03")):
            with self.subTest(arguments):
                narrow = ladder(*arguments, env={**os.environ, "COLUMNS": "80"}).stdout
                self.assertTrue(narrow)
                self.assertEqual([line for line in narrow.splitlines() if len(line) > 80], [])
        self.assertIn("Left out in 80 columns: ", narrow)
        wide = ladder(*arguments).stdout
        self.assertNotIn("Left out", wide)
        self.assertIn("FLOP/clk/SM", wide)

    def test_colour_is_for_terminals_that_want_it(self) -> None:
        check = ("check", "06", "--on", "cpu", "--n", "128", "--inputs", "normal")
        self.assertIn(b"\x1b[32mright", self.on_terminal(*check))
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            text = self.on_terminal(*check, **environment)
            self.assertIn(b"right", text)
            self.assertNotIn(b"\x1b", text)

    def test_a_narrow_terminal_has_progress_on_one_line(self) -> None:
        sizes = ",".join(map(str, range(1024, 3584, 128)))
        text = self.on_terminal("check", "00aa", "--on", "cpu", "--n", sizes, "--inputs", "one_hot", columns=40, until=b" left")
        line = text.split(b"\r")[-1]
        self.assertRegex(line, rb"^ +\d+ %  00aa_.* s left")
        self.assertLess(len(line), 40)


class CannotRunHere(unittest.TestCase):
    """Exit code 77: what is needed, what there is, and the way out."""

    def test_host_memory(self) -> None:
        result = ladder("check", "03", "--on", "cpu", "--n", GIGANTIC)
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertRegex(result.stderr, r"needs \d+\.\d GiB of host memory; \d+\.\d GiB are free")
        result = ladder("check", "00", "--on", "cpu", "--n", "10000000")
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertIn("for the n x n scores", result.stderr)

    def test_shared_memory(self) -> None:
        result = ladder("check", "00a", "--n", "65536")
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertIn("needs 256.0 KiB of shared memory per block for a row of 65536 scores", result.stderr)
        self.assertIn("Largest N here: 58104.", result.stderr)
        # Unnamed it is left out, and others have their own say.
        result = ladder("check", "--on", "cpu", "--n", str(2**24))
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertNotIn("00a_rowwise", result.stderr)

    def test_gpu(self) -> None:
        result = ladder("check", "06", "--on", "gpu", "--inputs", "normal")
        if result.returncode == DONE:
            result = ladder("check", "06", "--on", "gpu", "--n", GIGANTIC)
            self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
            self.assertIn("GiB are free", result.stderr)
            return
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn("--on cpu", result.stderr)
        self.assertIn("Emulator only.", ladder("check", "06", "--inputs", "normal").stdout)


class Words(unittest.TestCase):
    def test_overview(self) -> None:
        result = ladder("--n", "256")
        self.assertEqual(result.returncode, DONE, result.stdout + result.stderr)
        for part in ("GPU ", "Build", "00_naive", "07_dbuf", "8-way", "1-way", "ladder explain", "TFLOPS"):
            self.assertIn(part, result.stdout)

    def test_explain(self) -> None:
        result = ladder("explain", "4")
        self.assertEqual(result.returncode, DONE, result.stderr)
        for part in ("04_vpair", "Idea", "Before", "Prediction", "predicted", "03_kvpipe", "04_vpair/kernel.cuh:",
                     "ldmatrix.x4.trans", "sm_90"):
            self.assertIn(part, result.stdout)

    def test_explain_json_and_trace(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            trace = Path(directory, "trace.json")
            result = ladder("explain", "3", "--n", "256", "--json", "-", "--trace", str(trace))
            self.assertEqual(result.returncode, DONE, result.stderr)
            explained = json.loads(result.stdout)[0]
            self.assertEqual(explained["predicted"]["mma"], explained["counters"]["mma"])
            self.assertTrue(explained["sites"])
            traced = json.loads(trace.read_text())
            self.assertEqual([traced[key] for key in ("format", "stage", "n")], ["flash-ladder trace 1", "03_kvpipe", 256])
            self.assertEqual(traced["tile"], {"br": 64, "bc": 128, "warps": 4})
            self.assertEqual("\n".join(traced["source"]) + "\n", (ROOT / "03_kvpipe" / "kernel.cuh").read_text())
            self.assertIn({"launch": 0, "buffer": "K", "offset": 16384, "bytes": 32768}, traced["shared"])
            copy = {"launch": 0, "instruction": "cp.async.16", "file": "03_kvpipe/kernel.cuh", "line": 30, "bytes": 512,
                    "shared": {"buffer": "K", "bytes": 512}, "global": {"buffer": "K", "bytes": 512}}
            self.assertIn(copy, traced["sites"])
            # One block of 4 warps, 2 tiles: every byte of K is copied once, and all mma of the block are there.
            events = [traced["sites"][event[0]] for event in traced["events"]]
            self.assertEqual(sum(site["bytes"] for site in events if site == copy), traced["n"] * 256)
            mma = sum(site["instruction"] == "mma.m16n8k16" for site in events)
            self.assertEqual(mma, explained["counters"]["mma"] // 4)

    def test_help(self) -> None:
        for arguments in (("--help",), ("check", "--help"), ("bench", "-h")):
            result = ladder(*arguments)
            self.assertEqual(result.returncode, DONE)
            self.assertIn("--n", result.stdout)
        self.assertIn("130 interrupted", ladder("--help").stdout)


if __name__ == "__main__":
    LADDER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
