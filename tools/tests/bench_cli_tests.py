"""check, bench and compare from outside, on a fake GPU (fake_gpu.cpp).  python3 -m tools.tests.bench_cli_tests PATH/TO/ladder_fake_gpu

No rung is named here: those that a test needs come from `ladder describe`."""
from __future__ import annotations

import csv
import json
import math
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from tools import results
from tools.paths import ROOT
from tools.tests.ended import ended
from tools.tests.rungs import default, prefix, Rungs, step

LADDER = sys.argv.pop(1)
RUNGS = Rungs(LADDER)
A, B = next(RUNGS.pairs())  # neighbours; B starts from A, and both are dense only
ABLATED_FROM, ABLATED, OTHER_TILE = RUNGS.ablated()
CAUSAL = RUNGS.find(lambda rung: "causal" in default(rung)["problems"])
SCORES = RUNGS.find(lambda rung: default(rung)["needs_workspace"])  # n x n scores of 4 bytes
QUICK = min((rung for rung in RUNGS.all if not default(rung)["needs_workspace"] and "causal" not in default(rung)["problems"]),
            key=step)  # of short lengths, for a fake that computes each row by the formula
TILED = RUNGS.find(lambda rung: default(rung)["br"] > 0 and rung["previous"] != SCORES["stage"]
                   and default(rung)["formula"] == default(SCORES)["formula"])
FAKE_PEER = f"python3 {shlex.quote(str(ROOT / 'harness' / 'tests' / 'fakes' / 'fake_peer.py'))}"
HANG_S = 1200  # nothing here takes a tenth of it on the slowest laptop; a limit against hanging for ever
N = max(256, *map(step, (A, B, ABLATED_FROM, ABLATED, SCORES, TILED)))
SHAPE = ["--n", str(N), "--batch", "1", "--heads", "1"]
PROTOCOL = [*SHAPE, "--soak", "0.1"]
SMALL = [*PROTOCOL, "--rounds", "3"]  # where it does not matter how many
CEILINGS = ["mma_sync"]  # of the fake card's; the other one bounds nobody, and runs beside the whole ladder


def environment(**extra: str) -> dict[str, str]:
    return {**os.environ, "LADDER_COMMIT": "abc123", **extra}


def ladder(*arguments: str, ends: int | None = None, **extra: str) -> subprocess.CompletedProcess:
    run = subprocess.run([LADDER, *arguments], capture_output=True, text=True, timeout=HANG_S, env=environment(**extra))
    return ended(run, ends)


class Check(unittest.TestCase):
    def checked(self, *more: str, **extra: str) -> tuple[int, list[dict]]:
        run = ladder("check", QUICK["number"], "--on", "gpu", "--batch", "1", "--heads", "1", "--n", "64", "--json", "-", *more, **extra)
        return run.returncode, json.loads(run.stdout)

    def test_a_right_stage_passes_on_every_problem(self) -> None:
        code, results = self.checked()
        self.assertEqual(code, 0)
        self.assertEqual([result["failures"] for result in results if result["failures"]], [])
        lengths = {result["n"] for result in results}
        self.assertLess(min(lengths), 64)
        self.assertGreater(max(lengths), 1024)
        self.assertGreater(len({result.get("softmax_scale") for result in results}), 3)

    def test_a_wrong_stage_fails_on_every_problem(self) -> None:
        code, results = self.checked("--quick", FAKE_GPU_WRONG=QUICK["stage"])
        self.assertEqual(code, 1)
        told = [{failure["kind"] for failure in result["failures"]} for result in results
                if result["inputs"] != "nan_head"]
        self.assertTrue(all("wrong_result" in kinds for kinds in told), told)


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.csv = Path(self.directory.name) / "fake.csv"

    def tearDown(self) -> None:
        self.directory.cleanup()

    def rows(self) -> list[dict[str, str]]:
        return results.table(self.csv)

    def row(self, stage: str) -> dict[str, str]:
        [row] = [row for row in self.rows() if row["stage"] == stage]
        return row

    def test_table_and_csv_hold_every_stage_and_the_ceiling(self) -> None:
        # The one test that times every rung: on one input set.
        run = ladder("bench", *SMALL, "--n", str(math.lcm(N, RUNGS.length)), "--inputs", "normal", "--no-peers", "--csv",
                     str(self.csv), ends=0)
        names = [row["stage"] for row in self.rows()]
        self.assertEqual([row.stage for row in results.rows(self.csv)], names)  # by docs/results/schema.json
        self.assertCountEqual(names, [rung["stage"] for rung in RUNGS.all if default(rung)["dtype"] == "fp16" and default(rung)["formula"] == "forward"] + ["mma_sync", "ex2"])
        for name in names:
            self.assertIn(name, run.stdout)

    def test_a_row_says_what_it_was_measured_on_and_against(self) -> None:
        ladder("bench", A["number"], B["number"], *PROTOCOL, "--no-peers", "--csv", str(self.csv), ends=0)
        row, before = self.row(B["stage"]), self.row(A["stage"])
        self.assertAlmostEqual(float(row["vs_previous"]), float(row["tflops"]) / float(before["tflops"]), 4)
        self.assertEqual((row["previous"], row["verdict"]), (A["stage"], "faster"))
        self.assertEqual((row["rounds"], row["commit"], row["gpu"]), ("24", "abc123", "Fake GPU"))
        self.assertEqual((row["clock_mhz"], row["power_w"], row["heat"]), ("1500", "", "1"))
        self.assertLess(float(row["max_err"]), 1e-3)

    def test_json_on_stdout_stands_alone_and_every_round_can_be_kept(self) -> None:
        rounds = Path(self.directory.name) / "rounds.csv"
        run = ladder("bench", A["number"], B["number"], *SMALL, "--no-peers", "--json", "-",
                     "--rounds-csv", str(rounds), ends=0)
        rows = json.loads(run.stdout)
        self.assertEqual([row["stage"] for row in rows], [A["stage"], B["stage"], *CEILINGS])
        self.assertIs(rows[0]["causal"], False)
        self.assertIn("TFLOPS", run.stderr)
        self.assertEqual([row["round"] for row in results.table(rounds) if row["contestant"] == B["stage"]], ["1", "2", "3"])

    def test_causal_times_the_stages_that_can_and_counts_half_the_flops(self) -> None:
        run = ladder("bench", *SMALL, "--inputs", "normal", "--causal", "--no-peers", "--json", "-", ends=0)
        row = json.loads(run.stdout)[0]
        self.assertEqual((row["stage"], row["causal"]), (CAUSAL["stage"], True))
        flops = 2 * row["batch"] * row["heads"] * row["n"] ** 2 * row["d"]
        self.assertAlmostEqual(row["tflops"], flops / row["ms_median"] / 1e9, 1)
        self.assertNotIn(B["stage"], run.stdout)
        run = ladder("compare", CAUSAL["number"], B["number"], "--causal", *SMALL, ends=2)
        self.assertIn(f"{B['stage']} has no causal mask", run.stderr)

    def test_several_shapes_are_announced_and_have_one_header(self) -> None:
        run = ladder("bench", A["number"], B["number"], *SMALL, "--n", f"{N},{2 * N}", "--no-peers", "--csv", "-",
                     ends=0)
        self.assertRegex(run.stderr, r"\[1 of 2\] b=1 .*: \d+ heats? of \d+ \(3 rounds\).*; about 0 min \d\d s\.")
        self.assertRegex(run.stderr, r"\[2 of 2\]")
        self.assertIn("idle between groups", run.stderr)
        self.assertIn("are too few for a verdict", run.stderr)
        rows = list(csv.DictReader(run.stdout.splitlines()))
        self.assertEqual([row["n"] for row in rows if row["stage"] == A["stage"]], [str(N), str(2 * N)])

    def test_explain_launches_once_and_weighs_the_memory(self) -> None:
        names = [SCORES["stage"], B["stage"]]
        run = ladder("explain", SCORES["number"], B["number"], "--on", "gpu", *SHAPE, "--n", f"{N},{2 * N}",
                     "--json", "-", ends=0)
        entries = json.loads(run.stdout)
        self.assertEqual([(entry["stage"], entry["n"]) for entry in entries], [(name, n) for n in (N, 2 * N) for name in names])
        held = [entry["cuda.memory_used_bytes"] for entry in entries]
        scores = entries[0]["batch"] * entries[0]["heads"] * N * N * 4
        self.assertGreaterEqual(held[0] - held[1], scores)
        self.assertGreaterEqual(held[2] - held[3], 4 * scores)
        self.assertIn("right", run.stderr)

    def test_explain_on_gpu_leaves_out_what_cannot_run(self) -> None:
        tile = step(B)
        self.assertEqual(step(SCORES), 1)
        run = ladder("explain", SCORES["number"], B["number"], "--on", "gpu", *SHAPE, "--n", str(tile + 72), ends=0)
        self.assertIn(f"Left out: {B['stage']} needs N to be a multiple of {tile}", run.stdout)
        ladder("explain", B["number"], "--on", "gpu", *SHAPE, "--n", str(tile + 72), ends=2)
        run = ladder("explain", B["number"], "--on", "gpu", *SHAPE, FAKE_GPU_WRONG=B["stage"], ends=1)
        self.assertIn("WRONG", run.stdout)

    def test_peers_good_refusing_dying_and_rubbish(self) -> None:
        behaviours = ("good", "good", "refuses", "dies", "dies-at-once", "rubbish")
        run = ladder("bench", A["number"], *SMALL, "--csv", str(self.csv),
                     *(word for behaviour in behaviours for word in ("--peer", f"{FAKE_PEER} {behaviour}")), ends=0)
        self.assertEqual(self.row("fake")["kind"], "peer")
        for message in ("no module named torch", "ended with exit code 3", "answered with something other than",
                        "peer fake: another contestant has this name already",
                        "Traceback: CUDA out of memory"):
            self.assertIn(message, run.stdout)

    def test_a_peer_that_is_waited_for_is_named(self) -> None:
        go = Path(self.directory.name) / "go"
        with subprocess.Popen([LADDER, "bench", A["number"], *SMALL, "--no-peers", "--peer", f"{FAKE_PEER} slow"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, env=environment(FAKE_PEER_GO=str(go))) as process:
            named = any(re.search(r"peer .*fake_peer.py'? slow: not ready yet, at most  1\d\d s left", line) for line in process.stderr)
            go.touch()
            process.stderr.read()
        self.assertTrue(named)
        self.assertEqual(process.returncode, 0)

    def test_a_wrong_stage_gets_no_number(self) -> None:
        run = ladder("bench", A["number"], B["number"], *SMALL, "--no-peers", "--csv", str(self.csv),
                     FAKE_GPU_WRONG=B["stage"], ends=1)
        self.assertIn(f"{B['stage']}: not timed: wrong", run.stdout)
        self.assertEqual([row["stage"] for row in self.rows()], [A["stage"], *CEILINGS])

    def test_a_stage_that_is_wrong_when_timed_gets_no_number(self) -> None:
        run = ladder("bench", A["number"], B["number"], *SMALL, "--no-peers", "--csv", str(self.csv),
                     FAKE_GPU_STALE=B["stage"], ends=1)
        self.assertIn(f"{B['stage']}: not timed: wrong in a timed group: launch ", run.stdout)
        self.assertEqual([row["stage"] for row in self.rows()], [A["stage"], *CEILINGS])

    def test_what_a_peer_says_is_not_taken_on_trust(self) -> None:
        behaviours = ("instant", "quicker-than-time", "zeros", "keeps-poison", "short-output", "good", "boasts")
        run = ladder("bench", A["number"], *SMALL, "--no-peers", "--csv", str(self.csv),
                     *(word for behaviour in behaviours for word in ("--peer", f"{FAKE_PEER} {behaviour}")), ends=0)
        self.assertEqual({row["stage"] for row in self.rows() if row["kind"] == "peer"}, {"fake", "fake-boasts"})
        self.assertIn("fake-instant: not timed: peer fake-instant: claims 1e-300 ms for 1 launch, which no card can do", run.stdout)
        for lie in ("zeros: wrong: head ", "keeps-poison: wrong: head ", "short-output: was asked for "):
            self.assertIn(f"peer fake-{lie}", run.stdout)
        self.assertRegex(run.stdout, r"fake-quicker-than-time: wrong: head |fake-quicker-than-time: claims .* ms passed")
        self.assertIn("peer fake: unverified", run.stdout)
        [line] = [line for line in run.stdout.splitlines() if line.startswith("fake  ")]
        self.assertTrue(line.endswith("unverified"), line)
        # FLOPs of its own are a ceiling's: two peers of the same speed have the same rate.
        self.assertEqual(self.row("fake-boasts")["tflops"], self.row("fake")["tflops"])

    def test_another_formula_is_timed_on_problems_of_its_own(self) -> None:
        rung = min((rung for rung in RUNGS.all if default(rung)["formula"] != "forward" and default(rung)["br"] > 0), key=step)
        words = ["bench", rung["number"], "--batch", "1", "--heads", "2", "--n", str(2 * step(rung)), "--rounds", "3", "--soak", "0", "--no-peers"]
        for inputs in ("normal", "peaky"):  # units that belong together are seen together, or weights overflow
            ladder(*words, "--inputs", inputs, "--csv", str(self.csv), ends=0)
            self.assertTrue(self.row(rung["stage"])["problem"].startswith(default(rung)["formula"]))
            self.csv.unlink()
        run = ladder(*words, FAKE_GPU_STALE=rung["stage"], ends=1)
        self.assertIn("wrong in a timed group", run.stdout)

    def test_a_csv_that_holds_something_else_stops_the_bench_before_it_starts(self) -> None:
        self.csv.write_text("years of work\n", encoding="utf-8")
        for verb in (["bench", A["number"]], ["compare", A["number"], B["number"]]):
            run = ladder(*verb, *SMALL, "--csv", str(self.csv), ends=2)
            self.assertIn(f"{self.csv}:1: other columns than expected", run.stderr)
            self.assertEqual(run.stdout, "")
        self.assertEqual(self.csv.read_text(encoding="utf-8"), "years of work\n")

    def test_a_second_run_replaces_its_rows(self) -> None:
        for commit in ("old", "new"):
            ladder("bench", A["number"], *SMALL, "--no-peers", "--csv", str(self.csv), LADDER_COMMIT=commit, ends=0)
        self.assertEqual(self.row(A["stage"])["commit"], "new")

    def test_scores_that_do_not_fit_leave_out_their_rung_alone(self) -> None:
        run = ladder("bench", SCORES["number"], TILED["number"], *SMALL, "--n", "1024", "--heads", "2",
                     "--no-peers", "--csv", str(self.csv), ends=0)
        self.assertIn(f"{SCORES['stage']}: not timed:", run.stdout)
        self.assertIn("GiB", run.stdout)
        self.assertEqual([row["stage"] for row in self.rows()], [TILED["stage"], *CEILINGS])

    def test_inputs_that_do_not_fit_cannot_run_here(self) -> None:
        run = ladder("bench", TILED["number"], *SMALL, "--n", "8192", "--heads", "16", "--no-peers", ends=77)
        self.assertIn("GiB", run.stderr)

    def test_interrupt_keeps_the_shapes_that_are_done(self) -> None:
        command = [LADDER, "bench", A["number"], *SMALL, "--n", ",".join(map(str, range(N, 10 * N, N))), "--soak", "1", "--no-peers",
                   "--csv", str(self.csv)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        deadline = time.monotonic() + HANG_S
        while not (self.csv.exists() and self.csv.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=HANG_S)
        self.assertEqual(process.returncode, 130, stderr)
        done = [int(row["n"]) for row in self.rows() if row["stage"] == A["stage"]]
        self.assertEqual(done, list(range(N, 10 * N, N))[: len(done)])  # how many a busy machine had done is not ours
        self.assertTrue(0 < len(done) < 9)
        self.assertIn("interrupted; this heat is not recorded", stderr)
        self.assertIn(A["stage"], stdout)

    def test_an_interrupted_bench_goes_on_where_it_was(self) -> None:
        both = ["bench", A["number"], B["number"], *SMALL, "--no-peers", "--csv", str(self.csv)]
        ladder("bench", A["number"], *SMALL, "--no-peers", "--csv", str(self.csv), ends=0)  # as far as the first got
        first = self.row(A["stage"])
        ladder(*both, "--resume", ends=0)
        self.assertEqual(self.row(A["stage"]), first)
        self.assertGreater(int(self.row(B["stage"])["heat"]), int(first["heat"]))
        self.assertEqual(self.row(B["stage"])["previous"], A["stage"])  # a guest in that heat
        run = ladder(*both, "--resume")
        self.assertIn("all of it is recorded already", run.stdout)
        self.csv.write_text(self.csv.read_text().replace(",fp16,", ",bf16,"))  # which says nothing of fp16
        run = ladder(*both, "--resume")
        self.assertEqual({row["dtype"] for row in self.rows() if row["stage"] == A["stage"]}, {"bf16", "fp16"})
        self.csv.write_text("".join(line for line in self.csv.read_text().splitlines(True) if ",bf16," not in line))
        run = ladder(*both, "--resume", LADDER_COMMIT="another")
        self.assertEqual({row["commit"] for row in self.rows()}, {"another"})
        run = ladder("bench", A["number"], "--resume", ends=2)
        self.assertIn("name it with --csv FILE", run.stderr)

    def test_each_regime_has_its_rows(self) -> None:
        for regime in ([], ["--alone"], ["--burst"]):
            ladder("bench", A["number"], *PROTOCOL, "--rounds", "1", "--no-peers", *regime, "--csv", str(self.csv),
                   ends=0)
        self.assertEqual({row["regime"] for row in self.rows()}, {"turns", "alone", "burst"})
        ladder("bench", A["number"], "--alone", "--burst", ends=2)

    def test_after_a_full_disk_resume_makes_both_files_whole(self) -> None:
        rounds = self.csv.with_name("rounds.csv")
        command = ["bench", A["number"], *SMALL, "--n", ",".join(map(str, (N, 2 * N))), "--no-peers", "--csv", str(self.csv),
                   "--rounds-csv", str(rounds)]
        ladder(*command, ends=0)
        length, lines = rounds.stat().st_size, rounds.read_text().count("\n")
        for file in (self.csv, rounds):
            file.unlink()

        def no_room() -> None:  # for the last heat: a write ends in the middle
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (length - 200, resource.RLIM_INFINITY))

        full = subprocess.run([LADDER, *command], capture_output=True, text=True, timeout=HANG_S, env=environment(), preexec_fn=no_room)
        self.assertEqual(full.returncode, 1)
        self.assertRegex(full.stderr, r"cannot write .*rounds\.csv: File too large\n  The heat above is on the screen alone(?s:.*)--resume")
        self.assertIn(f"n={2 * N}", full.stdout)
        self.assertTrue(rounds.read_text().endswith("\n"))
        self.assertEqual({int(row["n"]) for row in self.rows()}, {N})
        ladder(*command, "--resume", ends=0)
        self.assertEqual({int(row["n"]) for row in self.rows()}, {N, 2 * N})
        self.assertEqual(rounds.read_text().count("\n"), lines)

    def test_any_contestant_can_be_the_denominator(self) -> None:
        run = ladder("bench", A["number"], B["number"], *SMALL, "--no-peers", "--peer", f"{FAKE_PEER} good",
                     "--versus", "fake", ends=0)
        self.assertIn("vs fake", run.stdout)
        run = ladder("bench", A["number"], *SMALL, "--no-peers", "--versus", "nobody", ends=2)
        self.assertIn("--versus nobody: nobody of that name takes part", run.stderr)

    def test_compare_takes_a_peer(self) -> None:
        peer = ["--no-peers", "--peer", f"{FAKE_PEER} good", "--peer", f"{FAKE_PEER} boasts"]
        run = ladder("compare", A["number"], "peer:fake", *SMALL, *peer, "--csv", str(self.csv), ends=0)
        self.assertIn("B / A = ", run.stdout)
        self.assertEqual([row["stage"] for row in self.rows()], [A["stage"], "fake"])
        self.assertEqual(self.row("fake")["version"], f"n={N} fp16 normal")
        run = ladder("compare", A["number"], "peer:fake", *SMALL, *peer, "--json", "-", ends=0)
        before, after = json.loads(run.stdout)
        self.assertNotIn("over", before)
        self.assertEqual(after["over"]["stage"], A["stage"])
        self.assertTrue(after["over"]["lo"] <= after["over"]["ratio"] <= after["over"]["hi"])
        self.assertAlmostEqual(after["over"]["ratio"], after["tflops"] / before["tflops"], 4)
        run = ladder("compare", A["number"], "peer:nobody", *SMALL, *peer, ends=77)
        self.assertIn("No peer nobody takes part", run.stderr)

    def test_compare_times_interleaved_and_says_who_is_faster(self) -> None:
        run = ladder("compare", A["number"], B["number"], *PROTOCOL, "--csv", str(self.csv), ends=0)
        self.assertIn("B is faster than A, from 20 rounds, in turns, ABBA", run.stdout)
        self.assertEqual(len(self.rows()), 2)
        run = ladder("compare", B["number"], A["number"], *PROTOCOL)
        self.assertIn("B is slower than A", run.stdout)
        ladder("compare",
               *(f"{ABLATED['number']}:{prefix(label)}" for label in (OTHER_TILE, default(ABLATED)["label"])),
               *SMALL, ends=0)

    def test_a_peer_can_be_tried_by_itself(self) -> None:
        run = ladder("peer", shlex.quote(str(Path(LADDER).with_name("peer_example"))), "--n", "128", ends=0)
        self.assertIn("poison, run, output: right, max error", run.stdout)
        self.assertIn("It keeps the protocol: a bench would time it.", run.stdout)
        for behaviour, code, says in (("good", 0, "keeps protocol 1"), ("refuses", 77, "no module named torch"),
                                      ("zeros", 1, "is 0 and should be"), ("renames-itself", 1, "has changed its name"),
                                      ("dies-at-once", 1, "ended with exit code 3"), ("instant", 1, "which no card can do")):
            # A command in one word or in several.
            run = ladder("peer", *([f"{FAKE_PEER} {behaviour}"] if code else [*shlex.split(FAKE_PEER), behaviour]),
                         "--n", "128", ends=code)
            self.assertIn(says, run.stdout + run.stderr)
        for wrong in ([], ["sh", "--n", "128,256"], ["sh", "--inputs", "all"]):
            self.assertEqual(ladder("peer", *wrong).returncode, 2)

    def test_compare_of_a_wrong_stage_fails(self) -> None:
        run = ladder("compare", A["number"], B["number"], *SMALL, FAKE_GPU_WRONG=B["stage"], ends=1)
        self.assertIn(f"{B['stage']}: not timed: wrong", run.stdout)


if __name__ == "__main__":
    unittest.main()
