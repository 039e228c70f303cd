"""The evidence scripts: diff sizes between rungs, and what ptxas says against the bounds of stage.cu."""
from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "harness" / "evidence"))
import resources  # noqa: E402

STAGE_CU = """
    .resources = {{.sm = 80, .registers = 200, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 16}},
    .variants = {variant<64, 32, 2>("64x32, 2 warps"), variant<64, 128, 4>("64x128, 4 warps")},
"""


def ptxas(arguments: str, sm: str, registers: int, stack: int = 0, stores: int = 0, loads: int = 0) -> str:
    """What ptxas -v prints for flash_attention<arguments>."""
    booleans = {"false": "Lb0E", "true": "Lb1E"}
    mangled = "".join(booleans.get(value.strip(), f"Li{value.strip()}E") for value in arguments.split(","))
    name = f"_ZN45_GLOBAL__N__b8ae078a_8_stage_cu_93cf54cc_739515flash_attentionI{mangled}EEv15AttentionParams"
    return (f"ptxas info    : Compiling entry function '{name}' for '{sm}'\n"
            f"ptxas info    : Function properties for {name}\n"
            f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers, 408 bytes cmem[0]\n"
            "ptxas info    : Compile time = 108.787 ms\n")


class Resources(unittest.TestCase):
    def run_on(self, log: str | None, stage_cu: str = STAGE_CU, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of resources.py for a project of one stage, 01_base."""
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            (root / "01_base").mkdir()
            (root / "01_base" / "stage.cu").write_text(stage_cu)
            objects = root / "build" / "CMakeFiles" / "stage_01_base_gpu.dir" / "01_base"
            objects.mkdir(parents=True)
            if log is not None:
                (objects / "stage.cu.o.ptxas").write_text(log)
            out, err = io.StringIO(), io.StringIO()
            with (mock.patch.object(resources, "ROOT", root), contextlib.redirect_stdout(out),
                  contextlib.redirect_stderr(err),
                  mock.patch.object(sys, "argv", ["resources.py", str(root / "build"), *arguments])):
                code = resources.main()
            return code, out.getvalue(), err.getvalue()

    def test_within_the_bounds(self) -> None:
        code, out, err = self.run_on(ptxas("64, 32, 2", "sm_80", 200) + ptxas("64, 32, 2", "sm_90a", 168, 16, 24, 8))
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"01_base +flash_attention<64, 32, 2> +80 +200 +0 +0 +0\n")
        self.assertRegex(out, r"01_base +flash_attention<64, 32, 2> +90 +168 +16 +24 +8\n")

    def test_a_register_too_many(self) -> None:
        code, _, err = self.run_on(ptxas("64, 32, 2", "sm_80", 201) + ptxas("64, 32, 2", "sm_90a", 168))
        self.assertEqual(code, 1)
        self.assertIn("takes 201 registers on sm_80; stage.cu allows 200", err)

    def test_a_spill(self) -> None:
        code, _, err = self.run_on(ptxas("64, 32, 2", "sm_80", 200, 4, 8, 4) + ptxas("64, 32, 2", "sm_90a", 168))
        self.assertEqual(code, 1)
        self.assertIn("spills 4 bytes on sm_80; stage.cu allows 0", err)

    def test_ablations_are_shown_and_not_bound(self) -> None:
        log = (ptxas("64, 128, 4", "sm_80", 255, 400, 800, 400) + ptxas("64, 32, 2", "sm_80", 200) +
               ptxas("64, 32, 2", "sm_90a", 168))
        code, out, _ = self.run_on(log)
        self.assertEqual(code, 0)
        self.assertIn("flash_attention<64, 128, 4>  (ablation)", out)

    def test_template_arguments_left_to_their_defaults(self) -> None:
        stage_cu = "template <int BR, int BC, int WARPS, bool PRELOAD = false>\nladder::Variant variant(" + STAGE_CU
        log = "".join(ptxas(f"64, 32, 2, {preload}", sm, registers) for sm in ("sm_80", "sm_90a")
                      for preload, registers in (("true", 255), ("false", 168)))
        code, out, err = self.run_on(log, stage_cu)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("<64, 32, 2, true>  (ablation)", out)

    def test_every_kernel_of_a_stage_without_templates_is_bound(self) -> None:
        log = "".join(ptxas("1", sm, 201) for sm in ("sm_80", "sm_90a"))
        code, _, err = self.run_on(log, STAGE_CU.replace("variant<64, 32, 2>", "ladder::make_variant"))
        self.assertEqual(code, 1)
        self.assertIn("sm_80", err)

    def test_an_architecture_that_was_not_compiled_or_not_bound(self) -> None:
        code, _, err = self.run_on(ptxas("64, 32, 2", "sm_80", 200))
        self.assertEqual(code, 1)
        self.assertIn("nothing was compiled for sm_90", err)
        unbound = STAGE_CU.replace(", {.sm = 90, .registers = 168, .spill_bytes = 16}", "")
        self.assertIn("no bound for sm_90", self.run_on(ptxas("64, 32, 2", "sm_80", 200), unbound)[2])

    def test_a_stage_of_newer_gpus_needs_no_bound_for_older_ones(self) -> None:
        newer = ".min_sm = 90," + STAGE_CU.replace("{.sm = 80, .registers = 200, .spill_bytes = 0}, ", "")
        code, _, err = self.run_on(ptxas("64, 32, 2", "sm_90a", 168), newer)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("no bound for sm_80", self.run_on(ptxas("64, 32, 2", "sm_90a", 168), newer.replace("= 90", "= 80", 1))[2])

    def test_a_default_variant_that_was_not_compiled(self) -> None:
        code, _, err = self.run_on(ptxas("64, 128, 4", "sm_80", 100) + ptxas("64, 128, 4", "sm_90a", 100))
        self.assertEqual(code, 1)
        self.assertIn("no compiled kernel", err)

    def test_no_report_and_broken_report(self) -> None:
        self.assertEqual(self.run_on(None)[0], 77)
        code, _, err = self.run_on("ptxas info    : 0 bytes gmem\n")
        self.assertEqual(code, 2)
        self.assertIn("no kernel in it", err)

    def test_csv(self) -> None:
        log = ptxas("64, 32, 2", "sm_80", 200) + ptxas("64, 32, 2", "sm_90a", 168)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "resources.csv"
            self.assertEqual(self.run_on(log, STAGE_CU, "--csv", str(path))[0], 0)
            lines = path.read_text().splitlines()
        self.assertEqual(lines[0], ",".join(resources.COLUMNS))
        self.assertEqual(lines[1], '01_base,"flash_attention<64, 32, 2>",1,80,200,0,0,0,')
        self.assertEqual(self.run_on(log, STAGE_CU, "--csv", "/proc/none/resources.csv")[0], 2)


class PtxasLog(unittest.TestCase):
    def test_keeps_the_report_and_passes_the_rest(self) -> None:
        report = ptxas("64", "sm_80", 32)
        with tempfile.TemporaryDirectory() as name:
            stub, out = Path(name) / "nvcc", Path(name) / "a b.o"
            stub.write_text(f"#!/bin/bash\necho 'a.cu(3): warning: stub' >&2\ncat >&2 <<'E'\n{report}E\nexit ${{STUB:-0}}\n")
            stub.chmod(0o755)
            command = [str(ROOT / "harness" / "evidence" / "ptxas_log"), str(stub), "-c", "a.cu", "-o", str(out)]
            run = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stderr), (0, "a.cu(3): warning: stub\n"))
            self.assertEqual(Path(f"{out}.ptxas").read_text(), report)
            run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "STUB": "3"})
            self.assertEqual(run.returncode, 3)


LADDER_STUB = """#!{python}
import json, os, sys
words = sys.argv[1:]
flag = lambda name: words[words.index(name) + 1]
assert words[0] == "explain" and "--json" in words
if os.environ.get("STUB_NO_GPU"):
    print("No GPU: none here.", file=sys.stderr)
    sys.exit(77)
stages = words[1:words.index("--n")]
entries = []
for n in map(int, flag("--n").split(",")):
    for stage in stages:
        if stage == os.environ.get("STUB_REFUSES"):
            continue
        entry = dict(stage=stage, batch=int(flag("--batch")), heads=int(flag("--heads")), n=n, d=128,
                     causal="--causal" in words)
        if flag("--on") == "gpu":
            entry |= {{"gpu": "Stub", "cuda.memory_used_bytes": 1000 * n}}
        else:
            entry |= dict(io_model_bytes=4.0 * n * n, counters=dict(
                gmem_bytes_read=7 * n, gmem_bytes_written=n, smem_wavefronts=3 * n, smem_wavefronts_ideal=2 * n))
        entries.append(entry)
if not entries:
    print("nothing to run", file=sys.stderr)
    sys.exit(77)
with open(flag("--json"), "w") as out:
    json.dump(entries, out)
"""

NCU_STUB = """#!{python}
# Runs the program and makes a table of it: two kernels for 00_naive, one for the others, fills before each.
import csv, json, os, subprocess, sys
words = sys.argv[1:]
flag = lambda name: words[words.index(name) + 1]
metrics = flag("--metrics").split(",")
log = open(flag("--log-file"), "w")
if os.environ.get("STUB_NO_RIGHT"):
    print("==ERROR== ERR_NVGPUCTRPERM - no permission", file=log)
    sys.exit(1)
program = next(i for i, word in enumerate(words) if word.endswith("/ladder"))
status = subprocess.run(words[program:]).returncode
if status:
    sys.exit(status)
print("==PROF== Connected to process 1", file=log)
table = csv.writer(log, quoting=csv.QUOTE_ALL)
table.writerow(["ID", "Kernel Name", *metrics])
table.writerow(["", "", *("byte" for _ in metrics)])
def kernel(name, duration, value):
    table.writerow([0, name, *(duration if metric == "gpu__time_duration.sum" else value for metric in metrics)])
kernel("ladder::(anonymous namespace)::fill(__half *, long, __half)", 1, 9)
for entry in json.load(open(flag("--json"))):
    kernel("ladder::(anonymous namespace)::fill(__half *, long, __half)", 1, 9)
    if entry["stage"] == "00_naive":
        kernel("scores(AttentionParams)", 100, 10)
        kernel("output(AttentionParams)", 300, 20)
    elif os.environ.get("STUB_LOSES") != entry["stage"]:
        kernel("void flash_attention<(int)64, (int)128>(AttentionParams)", 200, "n/a" if os.environ.get("STUB_NAN") else "1,500")
"""


class Traffic(unittest.TestCase):
    """traffic.py with stubs for the built program and for ncu."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.csv = self.folder / "traffic.csv"
        for name, text in (("ladder", LADDER_STUB), ("ncu", NCU_STUB)):
            (self.folder / name).write_text(text.format(python=sys.executable))
            (self.folder / name).chmod(0o755)

    def run_on(self, *arguments: object, ncu: bool = True, **environment: str) -> subprocess.CompletedProcess:
        path = f"{self.folder}:/usr/bin:/bin" if ncu else "/usr/bin:/bin"
        return subprocess.run([sys.executable, ROOT / "harness" / "evidence" / "traffic.py", "--build", self.folder,
                               "--commit", "abc", *map(str, arguments)], capture_output=True, text=True,
                              env={**os.environ, "PATH": path, **environment})

    def rows(self) -> dict[tuple[str, str, str], dict[str, str]]:
        with self.csv.open(encoding="utf-8", newline="") as file:
            return {(row["stage"], row["n"], row["metric"]): row for row in csv.DictReader(file)}

    def test_kernels_are_summed_and_shares_weighted(self) -> None:
        run = self.run_on("00_naive", "03", "--n", "512,1024", "--csv", self.csv)
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = self.rows()
        naive = rows["00_naive", "512", "dram__bytes_read.sum"]
        self.assertEqual((naive["value"], naive["batch"], naive["heads"], naive["gpu"], naive["source"], naive["commit"]),
                         ("30", "32", "16", "Stub", "measured", "abc"))
        self.assertEqual(rows["00_naive", "512", "lts__t_sector_hit_rate.pct"]["value"], "17.5")  # (100*10 + 300*20) / 400
        tiled = rows["03_kvpipe", "1024", "dram__bytes_read.sum"]
        self.assertEqual((tiled["value"], tiled["batch"], tiled["heads"]), ("1500", "16", "16"))
        self.assertEqual(rows["03_kvpipe", "1024", "cuda.memory_used_bytes"]["heads"], "2")
        self.assertIn("03_kvpipe", run.stdout)
        self.assertRegex(run.stdout, r"dram__bytes_read.sum +1500 +1500\n")

    def test_rows_are_replaced_and_others_kept(self) -> None:
        self.run_on("03", "--n", "512", "--csv", self.csv)
        before = self.rows()
        run = self.run_on("03", "--emulator", "--n", "512", "--csv", self.csv)
        self.assertEqual(run.returncode, 0, run.stderr)
        run = self.run_on("04", "--n", "512", "--csv", self.csv)
        rows = self.rows()
        self.assertLessEqual(before.items(), rows.items())
        self.assertEqual(rows["03_kvpipe", "512", "emulator.gmem_bytes_read"]["value"], "3584")
        self.assertEqual(rows["03_kvpipe", "512", "emulator.gmem_bytes_read"]["gpu"], "")
        self.assertEqual(rows["03_kvpipe", "512", "model.io_bytes"]["value"], "1048576")
        self.run_on("03", "--n", "512", "--commit", "def", "--csv", self.csv)
        again = self.rows()
        self.assertEqual(again.keys(), rows.keys())
        self.assertEqual(again["03_kvpipe", "512", "dram__bytes_read.sum"]["commit"], "def")
        with self.csv.open(encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), len(rows) + 1)

    def test_recorded_rows_are_held_to_new_ones(self) -> None:
        self.run_on("03", "--emulator", "--n", "512", "--csv", self.csv)
        run = self.run_on("03", "04", "--emulator", "--n", "512", "--check", self.csv)  # 04 is not recorded yet
        self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)
        self.csv.write_text(self.csv.read_text().replace(",3584,", ",3585,"))
        run = self.run_on("03", "--emulator", "--n", "512", "--check", self.csv)
        self.assertEqual(run.returncode, 1)
        self.assertIn("emulator.gmem_bytes_read is 3584", run.stderr)
        self.assertEqual(self.run_on("04", "--emulator", "--n", "512", "--check", self.csv).returncode, 1)

    def test_what_cannot_run_here(self) -> None:
        run = self.run_on("03", ncu=False)
        self.assertEqual(run.returncode, 77)
        self.assertRegex(run.stderr, "ncu is not on PATH(.|\n)*ladder explain")
        run = self.run_on("03", STUB_NO_GPU="1")
        self.assertEqual(run.returncode, 77)
        self.assertIn("No GPU: none here.", run.stderr)
        run = self.run_on("03", "--n", "512", STUB_NO_RIGHT="1")
        self.assertEqual(run.returncode, 77)
        self.assertIn("NVreg_RestrictProfilingToAdminUsers", run.stderr)

    def test_a_run_that_ncu_did_not_see(self) -> None:
        run = self.run_on("03", "04", "--n", "512", "--csv", self.csv, STUB_LOSES="03_kvpipe")
        self.assertEqual(run.returncode, 1)
        self.assertIn("1 runs, but the ladder made 2", run.stderr)
        self.assertFalse(self.csv.exists())

    def test_a_metric_without_a_number_is_left_out(self) -> None:
        run = self.run_on("03", "--n", "512", "--csv", self.csv, STUB_NAN="1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("no number for dram__bytes_read.sum", run.stderr)
        self.assertNotIn(("03_kvpipe", "512", "dram__bytes_read.sum"), self.rows())

    def test_a_stage_that_refuses_is_left_out(self) -> None:
        run = self.run_on("03", "04", "--n", "512", "--causal", "--csv", self.csv, STUB_REFUSES="03_kvpipe")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual({row["stage"] for row in self.rows().values()}, {"04_vpair"})
        self.assertEqual({row["causal"] for row in self.rows().values()}, {"1"})

    def test_bad_use(self) -> None:
        self.assertIn("there is no stage 'nix'", self.run_on("nix").stderr)
        self.assertEqual(self.run_on("03", "--n", "many").returncode, 2)
        self.csv.write_text("a,b\n1,2\n")
        run = self.run_on("03", "--n", "512", "--csv", self.csv)
        self.assertEqual(run.returncode, 1)
        self.assertIn("its columns are not", run.stderr)


class MachineCode(unittest.TestCase):
    """What the ideas of 04 to 08 changed in the machine code, as recorded in docs/results/h200_counters.csv."""

    def setUp(self) -> None:
        self.counts: dict[tuple[str, str], dict[str, int]] = {}
        with open(ROOT / "docs" / "results" / "h200_counters.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["metric"].startswith("sass."):
                    kernel = self.counts.setdefault((row["stage"], row["kernel"]), {})
                    kernel[row["metric"][len("sass."):]] = int(row["value"])

    def sum_of(self, stage: str, arguments: str, *opcodes: str) -> int:
        counts = self.counts[stage, f"flash_attention<{arguments}>"]
        return sum(counts[opcode] for opcode in opcodes)

    def test_each_idea_shows(self) -> None:
        wide, tall, batched = "64, 128, 4", "128, 64, 4", "128, 64, 4, 0"
        self.assertEqual(self.sum_of("02_swizzle", wide, "LDGSTS"), 0)
        self.assertGreater(self.sum_of("03_kvpipe", wide, "LDGSTS"), 0)
        self.assertLess(self.sum_of("04_vpair", wide, "LDSM"), self.sum_of("03_kvpipe", wide, "LDSM"))
        self.assertLess(self.sum_of("05_exp2f", wide, "FMUL", "FADD"), self.sum_of("04_vpair", wide, "FMUL", "FADD"))
        self.assertLess(self.sum_of("08_fragorder", tall, "MOV", "IMAD"), self.sum_of("06_batched", batched, "MOV", "IMAD"))

    def test_the_compiler_batches_by_itself(self) -> None:
        self.assertEqual(self.sum_of("05_exp2f", "128, 64, 4", "LDSM"), self.sum_of("06_batched", "128, 64, 4, 0", "LDSM"))

    def test_no_rung_changes_the_products(self) -> None:
        for stage, arguments in (("03_kvpipe", "64, 128, 4"), ("04_vpair", "64, 128, 4"), ("05_exp2f", "64, 128, 4"),
                                 ("06_batched", "128, 64, 4, 0"), ("07_dbuf", "128, 64, 4"), ("08_fragorder", "128, 64, 4")):
            self.assertEqual(self.sum_of(stage, arguments, "HMMA"), 256, stage)


class RungDiff(unittest.TestCase):
    def run_on(self, kernels: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
        with tempfile.TemporaryDirectory() as name:
            for stage, text in kernels.items():
                (Path(name) / stage).mkdir()
                (Path(name) / stage / "kernel.cuh").write_text(text)
                (Path(name) / stage / "stage.cu").touch()
            return subprocess.run([ROOT / "harness" / "evidence" / "rung_diff", *arguments], capture_output=True,
                                  text=True, env={**os.environ, "LADDER_ROOT": name})

    kernels = {"01_base": "a\nb\nc\nd\n", "02_next": "a\nB\nB2\nc\n", "03_more": "a\nB\nB2\nc\n"}

    def test_counts_a_replaced_line_once(self) -> None:
        run = self.run_on(self.kernels, "--most", "3")
        self.assertEqual(run.returncode, 0, run.stderr)
        # b became B and B2: 2; d was removed: 1.
        self.assertRegex(run.stdout, r"^02_next +3 changed lines since 01_base\n03_more +0 changed lines since 02_next\n$")

    def test_every_rung_is_compared_but_the_first(self) -> None:
        run = self.run_on({"00_naive": "x\n", "00a_first": "a\n", "00aa_next": "a\n", "00ab_between": "a\n", "00b_second": "b\n",
                           "01_base": "b\n"}, "--most", "1")
        self.assertRegex(run.stdout, r"^00a_first +1 changed lines since 00_naive\n00aa_next +0 changed lines since 00a_first\n"
                                     r"00ab_between +0 changed lines since 00aa_next\n00b_second +1 changed lines since 00ab_between\n"
                                     r"01_base +0 changed lines since 00b_second\n$")

    def test_the_first_rung_has_nothing_before_it(self) -> None:
        run = self.run_on(self.kernels, "1")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, "01_base is the first rung; there is nothing before it to compare with.\n")

    def test_too_many(self) -> None:
        run = self.run_on(self.kernels, "--most", "2")
        self.assertEqual(run.returncode, 1)
        self.assertIn("more than 2", run.stderr)

    def test_shows_one_stage_by_any_of_its_names(self) -> None:
        for name in ("2", "02", "next", "02_next", "02_next/", "NEXT"):
            run = self.run_on(self.kernels, name)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("+B2\n", run.stdout)
            self.assertIn("02_next: 3 changed lines since 01_base\n", run.stdout)

    def test_new_spacing_is_counted_and_not_shown(self) -> None:
        kernels = {"01_base": "a\nb\nc\nd\n", "02_next": "a\n  b\n  c\nD\n"}
        run = self.run_on(kernels, "02")
        self.assertIn("\n-d\n+D\n", run.stdout)
        self.assertNotRegex(run.stdout, r"(?m)^[-+] *[bc]$")
        self.assertIn("02_next: 3 changed lines since 01_base, 2 of them by spacing alone (not shown)\n", run.stdout)
        self.assertEqual(self.run_on(kernels, "--most", "2").returncode, 1)  # the limit counts them

    def test_bad_use(self) -> None:
        for arguments in ((), ("9",), ("--most",), ("--most", "x"), ("--most", "0", "02_next=3"), ("--help",)):
            run = self.run_on(self.kernels, *arguments)
            self.assertEqual(run.returncode, 2)
            self.assertIn("01_base 02_next 03_more", run.stderr)


if __name__ == "__main__":
    unittest.main()
