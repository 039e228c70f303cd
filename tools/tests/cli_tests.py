"""The `ladder` program from outside: exit codes, messages, and what stands on which stream.

Usage: python3 -m tools.tests.cli_tests PATH_TO_LADDER [unittest arguments]
No rung is named here: those that a test needs come from `ladder describe`.
"""

from __future__ import annotations

import fcntl
import json
import math
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
from typing import Any, Callable

from tools.paths import ROOT
from tools.tests.ended import ended
from tools.tests.rungs import default, Rungs, step

LADDER = ""
RUNGS: Rungs
A, B = {}, {}  # two neighbours that are cheap to emulate, dense only, with a tile; B starts from A
DONE, FAILED, USAGE, CANNOT_RUN_HERE, INTERRUPTED = 0, 1, 2, 77, 130
GIGANTIC = str(2**31 - 128)
MINUTES = ",".join(map(str, range(256, 6144, 256)))  # lengths that keep the emulator busy for so long
HANG_S = 1200  # nothing here takes a tenth of it on the slowest laptop; a limit against hanging for ever


def on_one_core() -> None:
    """For what is interrupted anyway: the other tests have the rest."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def ladder(*arguments: str, ends: int | None = None, **options) -> subprocess.CompletedProcess[str]:
    options = {"capture_output": True} | options
    return ended(subprocess.run([LADDER, *arguments], text=True, timeout=HANG_S, **options), ends)


# What `ladder describe` says of each rung and of each of its variants, for scripts to rely on.
RUNG_FIELDS = {"stage", "number", "word", "directory", "part", "part_title", "order", "previous", "role", "line", "more_lines", "idea", "limit",
               "prediction", "min_sm", "needs", "resources", "variants"}
VARIANT_FIELDS = {"label", "config", "br", "bc", "warps", "m_tiles", "smem_bytes", "smem_bytes_per_key", "min_d", "max_d", "dtype",
                  "problems", "writes_lse", "needs_workspace", "conflict_ways"}


class Usage(unittest.TestCase):
    """What the user got wrong: exit code 2, the message on stderr, nothing on stdout."""

    def refused(self, arguments: str, *parts: str) -> str:
        with self.subTest(arguments):
            result = ladder(*arguments.split(), ends=USAGE)
            self.assertEqual(result.stdout, "")
            for part in parts:
                self.assertIn(part, result.stderr)
        return result.stderr

    def names_the_nearest(self, said: str, can: Callable[[dict[str, Any]], bool]) -> None:
        named = re.search(r"Stages that can: (.*?)( and \d+ others?)?$", said, re.M)
        assert named, said
        order = [rung["stage"] for rung in RUNGS.all]
        away = [abs(order.index(name) - order.index(B["stage"])) for name in named[1].split(", ")]
        self.assertEqual(away, sorted(away))
        self.assertLessEqual(len(away), 3)
        for name in named[1].split(", "):
            self.assertTrue(any(map(can, RUNGS.by_name[name]["variants"])), said)

    def test_describe_takes_no_stage(self) -> None:
        self.refused(f"describe {B['number']}", "describe takes no stage", f"ladder explain {B['number']}")
        self.refused("describe all", "describe takes no stage", "'all'")

    def test_head_dimension(self) -> None:
        most = default(B)["max_d"]
        other = most // 2
        self.assertGreater(default(B)["min_d"], other)
        able = RUNGS.find(lambda rung: default(rung)["min_d"] <= other <= default(rung)["max_d"])
        said = self.refused(f"check {B['number']} --d {other}", f"needs a head dimension of {most}")
        self.names_the_nearest(said, lambda variant: variant["min_d"] <= other <= variant["max_d"])
        most = default(able)["max_d"]
        self.refused(f"check {able['number']} --d {most + 1}", f"needs a head dimension of {default(able)['min_d']} to {most}")

    def test_causal(self) -> None:
        said = self.refused(f"check {B['number']} --causal", f"{B['stage']} has no causal mask.")
        self.names_the_nearest(said, lambda variant: "causal" in variant["problems"])


class Check(unittest.TestCase):
    def test_a_first_look_says_of_what_and_once(self) -> None:
        last = RUNGS.all[-1]  # which is asked other problems
        for names, of in (([B["number"]], B["stage"]), ([B["number"], last["number"]], "2 rungs")):
            run = ladder("check", *names, "--on", "cpu", "--quick", ends=DONE)
            self.assertEqual(len(re.findall(r"^A first look", run.stdout, re.M)), 1, run.stdout)
            said = re.search(rf"^A first look at {of}: (\d+) of (\d+) trials. All of one rung:  \./ladder check {B['number']}$", run.stdout, re.M)
            assert said, run.stdout
            self.assertLess(int(said[1]), int(said[2]))

    def test_json_alone_on_stdout(self) -> None:
        n = 2 * step(B)
        result = ladder("check", A["number"], B["number"], "--on", "cpu", "--n", str(n), "--quick", "--json", "-",
                        ends=DONE)
        self.assertIn(B["stage"], result.stderr)  # the table
        rows = json.loads(result.stdout)
        self.assertEqual({row["stage"] for row in rows}, {A["stage"], B["stage"]})
        self.assertGreater(len(rows), 2 * 3)
        self.assertEqual(sum(row["stage"] == B["stage"] for row in rows), len(rows) / 2)
        for row in rows:
            self.assertTrue(row["ok"])
            self.assertLessEqual(row["max_err"], row["tolerance"])
            self.assertEqual(row["backend"], "emulator")

    def test_json_file_and_table(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "check.json")
            result = ladder("check", B["word"], "--on", "cpu", "--inputs", "normal", "--json", str(path), ends=DONE)
            self.assertIn("right", result.stdout)
            self.assertNotIn("\x1b", result.stdout)  # colour is for terminals
            [row] = json.loads(path.read_text())
            counters, n, d = row["counters"], 512, default(B)["max_d"]
            self.assertEqual((row["batch"], row["heads"], row["n"]), (1, 1, n))
            self.assertEqual(counters["smem_wavefronts"], counters["smem_wavefronts_ideal"])
            self.assertEqual(counters["mma"], 2 * n // 16 * n // 8 * d // 16)  # of 16 x 8 x 16, for QK and for PV
            self.assertEqual(counters["gmem_bytes_written"], n * d * 2)

    def test_the_same_problem_gives_the_same_result(self) -> None:
        arguments = ("check", B["number"], "--on", "cpu", "--n", str(step(B)), "--inputs", "peaky", "--seed", "5", "--json", "-")
        first, second = (json.loads(ladder(*arguments).stdout)[0] for _ in range(2))
        del first["seconds"], second["seconds"]
        self.assertEqual(first, second)

    def test_ablations(self) -> None:
        before, rung, _ = RUNGS.ablated()
        n = str(max(step(before), step(rung)))
        result = ladder("check", rung["number"], "--on", "cpu", "--n", n, "--inputs", "normal", "--ablate",
                        "--json", "-", ends=DONE)
        self.assertEqual(len(json.loads(result.stdout)), len(rung["variants"]))

    def test_a_problem_finds_the_variant_that_takes_it(self) -> None:
        rung = next(rung for rung in RUNGS.all if len({variant["dtype"] for variant in rung["variants"]}) > 1)
        other = next(variant for variant in rung["variants"] if variant["dtype"] != default(rung)["dtype"])
        word = {"f16": "fp16"}.get(other["dtype"], other["dtype"])
        result = ladder("check", rung["stage"], "--problem", f"{word} d={other['max_d']} n=70", "--quick",
                        "--json", "-", ends=DONE)
        self.assertEqual({row["variant"] for row in json.loads(result.stdout)}, {other["label"]})

    def test_several_shapes(self) -> None:
        one, three = step(B), 3 * step(B)
        result = ladder("--n", f"{one},{three}", "check", B["number"], "--on", "cpu", "--batch", "2", "--inputs", "normal",
                        "--json", "-")
        self.assertEqual([(row["n"], row["batch"]) for row in json.loads(result.stdout)], [(one, 2), (three, 2)])

    def test_any_shape_where_no_tile_divides_it(self) -> None:
        rung = RUNGS.find(lambda rung: step(rung) == 1 and default(rung)["min_d"] == 1)
        ladder("check", rung["number"], "--on", "cpu", "--n", "50", "--d", "33", "--inputs", "normal", ends=DONE)

    def test_short_work_shows_no_progress(self) -> None:
        self.assertEqual(ladder("check", B["number"], "--on", "cpu", "--n", str(step(B)), "--inputs", "normal").stderr, "")

    def test_full_disk(self) -> None:
        check = ("check", B["number"], "--on", "cpu", "--n", str(step(B)), "--inputs", "normal")
        result = ladder(*check, "--json", "/dev/full", ends=FAILED)
        self.assertIn("No space left on device", result.stderr)
        with open("/dev/full", "w") as full:
            result = ladder(*check, capture_output=False, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, FAILED)
        self.assertIn("No space left on device", result.stderr)

    def test_progress_and_an_interrupt_that_keeps_the_results_so_far(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "check.json")
            process = subprocess.Popen([LADDER, "check", B["number"], "--on", "cpu", "--n", MINUTES, "--inputs", "all",
                                        "--json", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=on_one_core)
            assert process.stderr is not None
            # The first line, after two seconds of work: some steps are done, and minutes are left.
            self.addCleanup(process.kill)
            progress = next(line for line in process.stderr if " % " in line)
            self.assertRegex(progress, rf"\d+ %  {B['stage']}, emulated, .*  \d+ s left")
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=HANG_S)
            self.assertEqual(process.returncode, INTERRUPTED)
            rows = json.loads(path.read_text())
            self.assertGreater(len(rows), 0)
            self.assertIn("Ctrl-C again ends at once", stderr)
            said = re.search(r"Interrupted: (\d+) of (\d+) launches were done", stderr)
            assert said, stderr
            self.assertTrue(0 < int(said[1]) < int(said[2]), stderr)


class Try(unittest.TestCase):
    """A kernel of the reader's: B's own with a change, in another place and under another name."""

    MARK = "  // STORE"

    def setUp(self) -> None:
        self.N = ("--inputs", "normal", "--n", str(step(B)))
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.kernel = (ROOT / B["directory"] / "kernel.cuh").read_text()
        self.assertEqual(self.kernel.count(self.MARK), 1)

    def attempt(self, text: str, *arguments: str, ends: int | None = None) -> subprocess.CompletedProcess[str]:
        Path(self.folder.name, "mine.cuh").write_text(text)
        return ladder("try", "mine.cuh", *arguments, cwd=self.folder.name, ends=ends)

    def changed(self, *lines: str) -> str:
        return self.kernel.replace(self.MARK, "\n".join([*(f"  {line}" for line in lines), self.MARK]))

    def refused(self, run: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
        self.assertEqual((run.returncode, run.stdout), (code, ""), run.stderr)
        for part in parts:
            self.assertIn(part, run.stderr)
        self.assertEqual(os.listdir(self.folder.name), ["mine.cuh"])

    def test_a_rung_s_own_kernel_is_checked_and_counted_as_the_rung(self) -> None:
        run = self.attempt(self.kernel, *self.N, "--json", "-", ends=DONE)
        rows = json.loads(run.stdout)
        checked = json.loads(ladder("check", B["number"], "--on", "cpu", *self.N, "--json", "-").stdout)
        self.assertEqual([row["counters"] for row in rows], [row["counters"] for row in checked])
        for part in (f"mine.cuh in the place of {B['stage']}", "predicted", "mine.cuh:", A["stage"]):
            self.assertIn(part, run.stderr)

    def test_the_first_line_or_a_flag_says_which_rung(self) -> None:
        nameless = self.kernel.replace(B["stage"], "mine")
        self.refused(self.attempt(nameless), USAGE, "its first line names no stage", "--like")
        self.attempt(nameless, "--like", B["word"], *self.N, ends=DONE)
        self.refused(self.attempt(self.kernel, "--like", "987"), USAGE, "no stage '987'")

    def test_right_answers_and_other_counts(self) -> None:
        slow = self.changed("__syncthreads();")
        run = self.attempt(slow, *self.N, "--counts", ends=FAILED)
        self.assertTrue(run.stdout.startswith("counts_differ: "), run.stdout)
        run = self.attempt(slow, *self.N, ends=DONE)
        self.assertRegex(run.stdout, r"(?s) right .*\n  barriers: ")
        run = self.attempt(slow, *self.N, "--answers-only", ends=DONE)
        self.assertNotIn("\n  barriers: ", run.stdout)

    def test_a_verdict_is_the_same_with_nvcc_and_without(self) -> None:
        """What only nvcc would refuse, or find dear, is right here as everywhere."""
        on_the_host = self.kernel.replace("namespace {", "namespace {\nfloat twice(float x) {\n  return x + x;\n}", 1)
        text = on_the_host.replace(self.MARK, f"  row_sum[0][0] = twice(row_sum[0][0]) / 2;\n{self.MARK}")
        self.assertEqual(self.attempt(text, *self.N).returncode, DONE)

    def test_a_wrong_answer(self) -> None:
        run = self.attempt(self.changed("row_sum[0][0] *= 1.01f;"), *self.N, ends=FAILED)
        self.assertIn("wrong_result", run.stdout)
        self.assertNotIn("predicted  ", run.stdout)

    def test_the_compiler_s_first_error_alone(self) -> None:
        run = self.attempt(self.changed("no_such_name += 1;", "nor_this += 1;"))
        self.refused(run, FAILED, "It does not compile", "mine.cuh:", "no_such_name", "more error")
        self.assertNotIn("nor_this", run.stderr)

    def test_what_a_kernel_leaves_unset_is_an_error_as_in_its_rung(self) -> None:
        self.refused(self.attempt(self.changed("float unset;", "row_sum[0][0] += unset;")), FAILED, "uninitialized")

    def test_what_is_no_kernel_s_business(self) -> None:
        for line in ("ladder::stages();", "emulator::Options options;", "#include <cstdlib>", '#include "common/words/../ptx/warp.cuh"', '#include "common/attention.hpp"', "asm(\"nop\");", "std::exit(0);",
                     "#import <cstdlib>", "\f#import <cstdlib>", "/**/ # import <cstdlib>",
                     '#embed "kernel.cuh"', "#pragma GCC poison row_sum", "#line 1 \"a\"", '_Pragma("once")',
                     "#ifdef __NVCC__", "#ifndef __PIC__", "#if __GNUC__ > 3", "#elif 1", "static int launches = 0;",
                     "if (requires { p.Q; }) return;", "__builtin_frame_address(0);", "#define row_sum 1", "::exit(0);", "lad\\\nder::stages();", "%:include <cstdlib>",
                     'const char* a = R"(")"; ladder::stages(); const char* b = "";', "char a = '\"'; ladder::stages(); char b = '\"';"):
            with self.subTest(line):
                self.refused(self.attempt(self.changed(line)), FAILED, "mine.cuh", "common/gpu.cuh")

    def test_what_a_kernel_may(self) -> None:
        self.attempt(self.changed(
            '// a comment may name what it likes: ladder::stages(), std::exit(0) "#include <x>"',
            "#if 0", "row_sum[0][0] *= 2;", "#else", "row_sum[0][0] *= 1;", "#endif",  # left out for every compiler
            "struct Two {", "  static __device__ int of(int a,", "                int b) {", "    return a + b;", "  }", "};", "row_sum[0][0] *= Two::of(0, 1);",
            "float some[3] = {0, 1, 2};", "row_sum[0][0] += some[threadIdx.x * 0];"),  # an index that is checked is no call
            *self.N, ends=DONE)

    def test_a_variable_outside_of_the_kernel(self) -> None:
        outside = self.kernel.replace("namespace {", "namespace {\nint launches_so_far = 0;\nconstexpr int fine = 3;", 1)
        for use in ("launches_so_far += 1;", "if (launches_so_far > 100) return;\n  launches_so_far += fine;"):
            run = self.attempt(outside.replace(self.MARK, f"  {use}\n{self.MARK}"))
            self.refused(run, FAILED, "mine.cuh", "launches_so_far is a variable outside", "its arguments alone")
        run = self.attempt(self.changed("thread_local int mine = 0;", "mine += 1;"))
        self.refused(run, FAILED, "mine.cuh", "is a variable outside")

    def test_a_seal(self) -> None:
        def sealed(secret: str, *arguments: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([LADDER, "try", "mine.cuh", *self.N, "--sealed", *arguments], input=secret, capture_output=True,
                                  text=True, cwd=self.folder.name)

        Path(self.folder.name, "mine.cuh").write_text(self.changed("row_sum[0][0] *= 1.01f;"))
        run = sealed("secret\n", "--json", "-")
        self.assertEqual(run.returncode, FAILED, run.stderr)
        self.assertEqual(run.stdout.split("secret")[::2], ["", ""])
        self.assertEqual(json.loads(run.stdout.split("secret")[1])[0]["failures"][0]["kind"], "wrong_result")
        for run in (sealed("secret\n"), sealed("", "--json", "-")):
            self.refused(run, USAGE, "--sealed")

    def test_files_that_are_none(self) -> None:
        self.assertIn("No such file", ladder("try", "/no/such/kernel.cuh").stderr)
        self.assertIn("is a directory", ladder("try", self.folder.name).stderr)
        self.refused(self.attempt(" \n"), USAGE, "is empty")
        self.refused(self.attempt(self.kernel, "two"), USAGE, "one word too many")
        self.refused(self.attempt(self.kernel, "--on", "gpu"), USAGE, "on the emulator")
        self.assertIn("takes the file", ladder("try").stderr)


class Compare(unittest.TestCase):
    def test_json_has_what_the_emulator_counted(self) -> None:
        both = (A["number"], B["number"])
        arguments = ("--on", "cpu", "--n", str(step(B)), "--json")
        result = ladder("compare", *both, *arguments, "-", ends=DONE)
        self.assertIn("B / A", result.stderr)  # the table
        rows = json.loads(result.stdout)
        self.assertEqual([row["stage"] for row in rows], [A["stage"], B["stage"]])
        checked = json.loads(ladder("check", *both, "--inputs", "normal", *arguments, "-").stdout)
        for row in rows + checked:
            del row["seconds"]
        self.assertEqual(rows, checked)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "compare.json")
            self.assertEqual(ladder("compare", *both, *arguments, str(path)).returncode, DONE)
            self.assertEqual(len(json.loads(path.read_text())), 2)
        self.assertEqual(ladder("compare", *both, *arguments, "/dev/full").returncode, FAILED)

    def test_csv_without_timings_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "compare.csv")
            result = ladder("compare", A["number"], B["number"], "--on", "cpu", "--n", str(step(B)),
                            "--csv", str(path), ends=CANNOT_RUN_HERE)
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
                                   env={**known, "TERM": "xterm", **environment}, preexec_fn=on_one_core)
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
        n = str(step(B))
        newest = max(RUNGS.all, key=lambda rung: (rung["min_sm"], -rung["order"]))
        for arguments in (("explain", B["number"], "--n", n), ("explain", newest["number"], "--n", str(step(newest))),
                          ("compare", A["number"], B["number"], "--n", n), ("bench",)):
            with self.subTest(arguments):
                narrow = ladder(*arguments, env={**os.environ, "COLUMNS": "80"}).stdout
                self.assertTrue(narrow)
                self.assertEqual([line for line in narrow.splitlines() if len(line) > 80], [])
        self.assertIn("Left out in 80 columns: ", narrow)
        wide = ladder(*arguments).stdout
        self.assertNotIn("Left out", wide)
        self.assertIn("FLOP/clk/SM", wide)

    def test_colour_is_for_terminals_that_want_it(self) -> None:
        check = ("check", B["number"], "--on", "cpu", "--n", str(step(B)), "--inputs", "normal")
        self.assertIn(b"\x1b[32mright", self.on_terminal(*check))
        for environment in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            text = self.on_terminal(*check, **environment)
            self.assertIn(b"right", text)
            self.assertNotIn(b"\x1b", text)

    def test_a_narrow_terminal_has_progress_on_one_line(self) -> None:
        text = self.on_terminal("check", B["number"], "--on", "cpu", "--n", MINUTES, "--inputs", "all", columns=40, until=b" left")
        line = text.split(b"\r")[-1]
        self.assertRegex(line, rb"^ +\d+ %%  %s_.* s left" % B["number"].encode())
        self.assertLess(len(line), 40)


class CannotRunHere(unittest.TestCase):
    """Exit code 77: what is needed, what there is, and the way out."""

    def test_host_memory(self) -> None:
        result = ladder("check", B["number"], "--on", "cpu", "--n", GIGANTIC, ends=CANNOT_RUN_HERE)
        self.assertRegex(result.stderr, r"needs \d+\.\d GiB of host memory; \d+\.\d GiB are free")

    def test_host_memory_for_a_workspace(self) -> None:
        rung = RUNGS.find(lambda rung: default(rung)["needs_workspace"])
        n = 10_000_000 // step(rung) * step(rung)
        result = ladder("check", rung["number"], "--on", "cpu", "--n", str(n), ends=CANNOT_RUN_HERE)
        self.assertRegex(result.stderr, r"needs \d+\.\d GiB of host memory, \d+\.\d of them a workspace")

    def test_shared_memory(self) -> None:
        rung = RUNGS.find(lambda rung: default(rung)["smem_bytes_per_key"] > 0)
        if rung is None:
            self.skipTest("no rung's shared memory grows with n")
        ladder("check", rung["number"], "--n", "65536", ends=CANNOT_RUN_HERE)
        # Unnamed it is left out, and others have their own say.
        result = ladder("check", "--on", "cpu", "--n", str(2**24), ends=CANNOT_RUN_HERE)
        self.assertNotIn(rung["stage"], result.stderr)

    def test_gpu(self) -> None:
        check = ("check", B["number"], "--inputs", "normal")
        result = ladder(*check, "--on", "gpu")
        if result.returncode == DONE:
            result = ladder("check", B["number"], "--on", "gpu", "--n", GIGANTIC, ends=CANNOT_RUN_HERE)
            self.assertIn("GiB are free", result.stderr)
            return
        self.assertEqual(result.returncode, CANNOT_RUN_HERE, result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertIn("--on cpu", result.stderr)
        self.assertIn("Emulator only.", ladder(*check).stdout)


class Words(unittest.TestCase):
    @unittest.skipUnless("LADDER_WHOLE" in os.environ, "runs every rung, as .ci/run does by ./ladder")
    def test_overview(self) -> None:
        result = ladder("--n", str(RUNGS.length), env={**os.environ, "COLUMNS": "80"}, ends=DONE)
        ways = {default(rung)["conflict_ways"] for rung in RUNGS.all} - {0}
        for part in ["GPU ", "Build", "1-way", f"{max(ways):.0f}-way", "ladder explain", "x fa2"]:
            self.assertIn(part, result.stdout)
        self.assertEqual([line for line in result.stdout.splitlines() if len(line) > 80], [])
        line = [rung["stage"] for rung in RUNGS.all if rung["role"] == "line"]
        self.assertEqual(re.findall(r"(?m)^(\S+) +right ", result.stdout), line)
        self.assertIn(f"{len(RUNGS.all) - len(line)} more are right", result.stdout)
        result = ladder("--all", "--n", str(RUNGS.length))
        self.assertEqual(re.findall(r"(?m)^(\S+) +right ", result.stdout), [rung["stage"] for rung in RUNGS.all])

    def test_list(self) -> None:
        listed = re.findall(r"(?m)^(?:  )?(\w+) +(?:line|branch|variant|port|lost) ", ladder("list").stdout)
        by_line = sorted(RUNGS.all, key=lambda rung: (RUNGS.by_name[rung["line"]]["order"], rung["role"] != "line"))
        self.assertEqual(listed, [rung["stage"] for rung in by_line])
        line = [rung["stage"] for rung in RUNGS.all if rung["role"] == "line"]
        beside = RUNGS.find(lambda rung: rung["line"] not in (rung["stage"], rung["previous"], line[-1]))
        for rung in (RUNGS.by_name[line[1]], RUNGS.by_name[line[-1]], beside):
            after = [stage for stage in line if RUNGS.by_name[stage]["order"] > RUNGS.by_name[rung["line"]]["order"]][:1]
            found = re.findall(r"(?m)^(this|starts from this|starts from|hangs under|next of the line) +(\S+) ", ladder("list", rung["number"]).stdout)
            self.assertEqual(found, [("this", rung["stage"]), ("starts from", rung["previous"]),
                                     *[("hangs under", rung["line"])] * (rung["line"] not in (rung["stage"], rung["previous"])),
                                     *[("starts from this", other["stage"]) for other in RUNGS.all if other["previous"] == rung["stage"]],
                                     *[("next of the line", stage) for stage in after]])
            (said,) = json.loads(ladder("list", rung["number"], "--json", "-").stdout)
            self.assertEqual((said["stage"], said["line"], said["next_of_the_line"]), (rung["stage"], rung["line"], "".join(after)))

    def test_describe(self) -> None:
        for order, rung in enumerate(RUNGS.all):
            with self.subTest(rung["stage"]):
                self.assertEqual(rung["order"], order)
                self.assertEqual(rung["stage"], f"{rung['number']}_{rung['word']}")
                self.assertEqual(rung["directory"], "/".join(filter(None, (rung["part"], rung["stage"]))))
                self.assertLessEqual(RUNG_FIELDS, rung.keys())
                for variant in rung["variants"]:
                    self.assertLessEqual(VARIANT_FIELDS, variant.keys())
                    self.assertLessEqual(variant["min_d"], variant["max_d"])
                    self.assertIn("dense", variant["problems"])
        table = ladder("describe").stdout
        for rung in RUNGS.all:
            self.assertIn(rung["stage"], table)

    def test_explain(self) -> None:
        result = ladder("explain", B["number"], ends=DONE)
        for part in (B["stage"], "Idea", "Before", "Prediction", "predicted", A["stage"], f"{B['stage']}/kernel.cuh:",
                     "ldmatrix", f"sm_{B['resources'][0]['sm']}"):
            self.assertIn(part, result.stdout)

    def test_explain_says_how_large_scores_may_be(self) -> None:
        for limited in (True, False):
            rung = next(rung for rung in RUNGS.all if (default(rung)["largest_score"] > 0) == limited and rung["stage"] != A["stage"])
            result = ladder("explain", rung["number"], "--n", str(step(rung)), ends=DONE)
            if limited:
                self.assertRegex(result.stdout, rf"Scores +up to 2\^{math.log2(default(rung)['largest_score']):g} .* says why")
            else:
                self.assertNotIn("Scores ", result.stdout)

    def test_explain_compares_with_the_rung_that_it_starts_from(self) -> None:
        for rung in RUNGS.all:  # a branch does not start from the rung that stands before it
            is_branch = rung["order"] > 0 and default(rung)["br"] > 0 and RUNGS.all[rung["order"] - 1]["stage"] != rung["previous"]
            if is_branch and default(rung)["dtype"] == default(RUNGS.before(rung))["dtype"]:
                result = ladder("explain", rung["stage"], "--n", str(math.lcm(step(rung), step(RUNGS.before(rung)))))
                self.assertRegex(result.stdout, rf"predicted +counted +{rung['previous']}\b")
                return

    def test_explain_json_and_trace(self) -> None:
        tile, n = default(B), 2 * step(B)
        with tempfile.TemporaryDirectory() as directory:
            trace = Path(directory, "trace.json")
            result = ladder("explain", B["number"], "--n", str(n), "--json", "-", "--trace", str(trace), ends=DONE)
            explained = json.loads(result.stdout)[0]
            self.assertEqual(explained["predicted"]["mma"], explained["counters"]["mma"])
            self.assertTrue(explained["sites"])
            traced = json.loads(trace.read_text())
        self.assertEqual([traced[key] for key in ("format", "stage", "n")], ["flash-ladder trace 1", B["stage"], n])
        self.assertEqual(traced["tile"], {key: tile[key] for key in ("br", "bc", "warps")})
        self.assertEqual("\n".join(traced["source"]) + "\n", (ROOT / B["directory"] / "kernel.cuh").read_text())
        self.assertEqual({part["buffer"] for part in traced["shared"]} & {"Q", "K", "V"}, {"Q", "K", "V"})
        # One block: every byte of K is copied once, and all mma of the block are there.
        events = [traced["sites"][event[0]] for event in traced["events"]]
        copied = sum(site["bytes"] for site in events if site.get("global", {}).get("buffer") == "K")
        self.assertEqual(copied, n * tile["max_d"] * 2)
        mma = sum(site["instruction"].startswith("mma") for site in events)
        self.assertEqual(mma, explained["counters"]["mma"] // (n // tile["br"]))
        self.assertTrue(all(site["file"] == f"{B['stage']}/kernel.cuh" for site in traced["sites"]))

    def test_each_verb_has_two_examples_of_itself(self) -> None:
        for verb in ("check", "bench", "compare", "explain", "describe", "list", "peer", "try"):
            with self.subTest(verb):
                said = ladder(verb, "--help", ends=DONE).stdout
                self.assertRegex(said, rf"(?m)^Examples:\n(?:  \./ladder {verb}\b.*\n){{2}}$")


if __name__ == "__main__":
    LADDER = os.path.abspath(sys.argv.pop(1))
    RUNGS = Rungs(LADDER)
    A, B = next(RUNGS.pairs())
    unittest.main()
