"""The evidence scripts: diff sizes between rungs, and what ptxas says against the bounds of stage.cu."""
from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from tools import results, rungs
from tools.evidence import counters, formats, grid, machine_code, ncu, offsets, resources
from tools.paths import DOCS, ROOT
from tools.tests import fake_ladder
from tools.tests.ended import ended

RUNG = "01_wood"
TWO_TILES = [fake_ladder.variant(), fake_ladder.variant("64x128, 4 warps", "Config<64, 128, 4>")]


def mangled(arguments: str) -> str:
    """flash_attention<Config<arguments>>, as the compiler writes it."""
    booleans = {"false": "Lb0E", "true": "Lb1E"}
    values = "".join(booleans.get(value.strip(), f"Li{value.strip()}E") for value in arguments.split(","))
    return f"_ZN45_GLOBAL__N__b8ae078a_8_stage_cu_93cf54cc_739515flash_attentionINS_6ConfigI{values}EEEEv15AttentionParams"


def ptxas(arguments: str, sm: str, registers: int, stack: int = 0, stores: int = 0, loads: int = 0) -> str:
    """What ptxas -v prints for flash_attention<Config<arguments>>."""
    name = mangled(arguments)
    return (f"ptxas info    : Compiling entry function '{name}' for '{sm}'\n"
            f"ptxas info    : Function properties for {name}\n"
            f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 1 barriers, 408 bytes cmem[0]\n"
            "ptxas info    : Compile time = 108.787 ms\n")


class Resources(unittest.TestCase):
    def run_on(self, log: str | None, *arguments: str, asked: str = "", flags: str = "", **said) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of resources.py for a ladder of one rung."""
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            program = fake_ladder.write(root / "ladder", [fake_ladder.rung(RUNG, **{"variants": TWO_TILES, **said})])
            objects = root / "build" / "CMakeFiles" / f"stage_{RUNG}_gpu.dir" / RUNG
            objects.mkdir(parents=True)
            if log is not None:
                (objects / "stage.cu.o.ptxas").write_text(log)
            (root / "build" / "CMakeCache.txt").write_text(f"LADDER_CUDA:STRING=ON\nLADDER_CUDA_ARCHITECTURES:STRING={asked}\n"
                                                         f"CMAKE_CUDA_FLAGS:STRING={flags}\n")
            out, err = io.StringIO(), io.StringIO()
            rungs.known.cache_clear()
            with (mock.patch.dict(os.environ, {"LADDER": str(program)}), contextlib.redirect_stdout(out),
                  contextlib.redirect_stderr(err),
                  mock.patch.object(sys, "argv", ["resources.py", str(root / "build"), *arguments])):
                code = resources.main()
            rungs.known.cache_clear()
            return code, out.getvalue(), err.getvalue()

    def test_within_the_bounds(self) -> None:
        code, out, err = self.run_on(ptxas("64, 32, 2", "sm_80", 200) + ptxas("64, 32, 2", "sm_90a", 168, 16, 24, 8))
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"01_wood +flash_attention<64, 32, 2> +80 +200 +0 +0 +0\n")
        self.assertRegex(out, r"01_wood +flash_attention<64, 32, 2> +90 +168 +16 +24 +8\n")

    def test_what_exceeds_its_bounds_or_has_none(self) -> None:
        old, new, only = ptxas("64, 32, 2", "sm_80", 200), ptxas("64, 32, 2", "sm_90a", 168), [fake_ladder.variant("the only one", "")]
        for log, ladder, said in (
                (ptxas("64, 32, 2", "sm_80", 201) + new, {}, "takes 201 registers on sm_80; stage.cu allows 200"),
                (ptxas("64, 32, 2", "sm_80", 200, 4, 8, 4) + new, {}, "spills 4 bytes on sm_80; stage.cu allows 0"),
                (ptxas("1", "sm_80", 201) + ptxas("1", "sm_90a", 168), {"variants": only}, "takes 201 registers on sm_80"),
                (ptxas("64, 128, 4", "sm_80", 100) + ptxas("64, 128, 4", "sm_90a", 100), {}, "no compiled kernel"),
                (old, {}, "nothing was compiled for sm_90"),
                (old, {"asked": "80-real;90a-real"}, "nothing was compiled for sm_90"),
                (old, {"resources": fake_ladder.BOUNDS[:1]}, "no bound for sm_90"),
                (new, {"resources": fake_ladder.BOUNDS[1:]}, "no bound for sm_80")):
            with self.subTest(said):
                code, _, err = self.run_on(log, **ladder)
                self.assertEqual(code, 1)
                self.assertIn(said, err)
        self.assertEqual(self.run_on(old, asked="80-real")[0], 0)

    def test_ablations_are_shown_and_not_bound(self) -> None:
        log = (ptxas("64, 128, 4", "sm_80", 255, 400, 800, 400) + ptxas("64, 32, 2", "sm_80", 200) +
               ptxas("64, 32, 2", "sm_90a", 168))
        code, out, _ = self.run_on(log)
        self.assertEqual(code, 0)
        self.assertIn("flash_attention<64, 128, 4>  (ablation)", out)

    def test_template_arguments_left_to_their_defaults(self) -> None:
        variants = [fake_ladder.variant(), fake_ladder.variant("V preloaded", "Config<64, 32, 2, true>")]
        log = "".join(ptxas(f"64, 32, 2, {preload}", sm, registers) for sm in ("sm_80", "sm_90a")
                      for preload, registers in (("true", 255), ("false", 168)))
        self.assertEqual(resources.arguments_of("attention<4, true, 16384u>"), resources.arguments_of("Config<4, 1, 16384>"))
        code, out, err = self.run_on(log, variants=variants)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("<64, 32, 2, true>  (ablation)", out)

    def test_a_stage_of_newer_gpus_needs_no_bound_for_older_ones(self) -> None:
        newer = fake_ladder.BOUNDS[1:]
        log = ptxas("64, 32, 2", "sm_80", 4) + ptxas("64, 32, 2", "sm_90a", 168)  # it is compiled for all
        code, out, err = self.run_on(log, resources=newer, min_sm=90)
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r" 90 +168 ")
        self.assertNotRegex(out, r" 80 +4 ")

    def test_no_report_and_broken_report(self) -> None:
        self.assertEqual(self.run_on(None)[0], 77)
        code, _, err = self.run_on("ptxas info    : 0 bytes gmem\n")
        self.assertEqual(code, 2)
        self.assertIn("no kernel in it", err)
        self.assertEqual(self.run_on("ptxas info    : 0 bytes gmem\n", flags="-fdevice-syntax-only")[0], 77)

    def test_csv(self) -> None:
        log = ptxas("64, 32, 2", "sm_80", 200) + ptxas("64, 32, 2", "sm_90a", 168)
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / "resources.csv"
            self.assertEqual(self.run_on(log, "--csv", str(path))[0], 0)
            lines = path.read_text().splitlines()
        self.assertEqual(lines[0], "stage,kernel,default,sm,registers,spill_bytes,spill_store_bytes,spill_load_bytes,nvcc")
        self.assertEqual(lines[1], '01_wood,"flash_attention<64, 32, 2>",1,80,200,0,0,0,')
        self.assertEqual(self.run_on(log, "--csv", "/proc/none/resources.csv")[0], 2)


class KernelNames(unittest.TestCase):
    def test_a_kernel_has_one_name_whoever_says_it(self) -> None:
        for said in ("void flash_attention<(int)64, (int)128>(AttentionParams)", "void flash_attention<Config<(int)64, (unsigned int)128>>(AttentionParams)",
                     "void (anonymous namespace)::flash_attention<(anonymous namespace)::Config<64, 128> >(AttentionParams)"):
            self.assertEqual(ncu.short_name(said), "flash_attention<64, 128>")
        self.assertEqual(ncu.short_name("scores(AttentionParams)"), "scores")
        self.assertEqual(counters.template_name(mangled("64, 128, true")), "flash_attention<64, 128, 1>")
        self.assertEqual(counters.template_name("_ZN45_GLOBAL__N__b8ae078a_6scoresE15AttentionParams"), "scores")


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

    def test_an_object_that_asks_for_exit_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            for text, code in (("int main() {}", 0), ("#include <cstdlib>\nvoid of_device() { std::exit(1); }", 1)):
                out = Path(name) / "a.o"
                command = [str(ROOT / "harness" / "evidence" / "ptxas_log"), "c++", "-x", "c++", "-", "-c", "-o", str(out)]
                run = subprocess.run(command, input=text, capture_output=True, text=True)
                self.assertEqual((run.returncode, out.exists()), (code, code == 0), run.stderr)
                self.assertEqual("__host__ __device__" in run.stderr, code == 1)


LADDER_STUB = """
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
            entry |= {"gpu": "Stub", "cuda.memory_used_bytes": 1000 * n}
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
# Runs the program and makes a table of it: two kernels for 00_stone, one for the others, fills before each.
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
    if entry["stage"] == "00_stone":
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
        fake_ladder.write(self.folder / "ladder", rest=LADDER_STUB)
        (self.folder / "ncu").write_text(NCU_STUB.format(python=sys.executable))
        (self.folder / "ncu").chmod(0o755)

    def run_on(self, *arguments: object, ncu: bool = True, ends: int | None = None,
               **environment: str) -> subprocess.CompletedProcess:
        path = f"{self.folder}:/usr/bin:/bin" if ncu else "/usr/bin:/bin"
        command = [sys.executable, "-m", "tools.evidence.traffic", "--build", self.folder, "--commit", "abc"]
        return ended(subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True,
                                    env={**os.environ, "PATH": path, **environment}), ends)

    def rows(self) -> dict[tuple[str, str, str], dict[str, str]]:
        return {(row["stage"], row["n"], row["metric"]): row for row in results.table(self.csv)}

    def test_kernels_are_summed_and_shares_weighted(self) -> None:
        run = self.run_on("00_stone", "03", "--n", "512,1024", "--csv", self.csv, ends=0)
        rows = self.rows()
        naive = rows["00_stone", "512", "dram__bytes_read.sum"]
        self.assertEqual((naive["value"], naive["batch"], naive["heads"], naive["gpu"], naive["source"], naive["commit"]),
                         ("30", "32", "16", "Stub", "measured", "abc"))
        self.assertEqual(rows["00_stone", "512", "lts__t_sector_hit_rate.pct"]["value"], "17.5")  # (100*10 + 300*20) / 400
        tiled = rows["03_iron", "1024", "dram__bytes_read.sum"]
        self.assertEqual((tiled["value"], tiled["batch"], tiled["heads"]), ("1500", "16", "16"))
        self.assertEqual(rows["03_iron", "1024", "cuda.memory_used_bytes"]["heads"], "2")
        self.assertIn("03_iron", run.stdout)
        self.assertRegex(run.stdout, r"dram__bytes_read.sum +1500 +1500\n")

    def test_rows_are_replaced_and_others_kept(self) -> None:
        self.run_on("03", "--n", "512", "--csv", self.csv)
        before = self.rows()
        self.run_on("03", "--emulator", "--n", "512", "--csv", self.csv, ends=0)
        self.run_on("04", "--n", "512", "--csv", self.csv)
        rows = self.rows()
        self.assertLessEqual(before.items(), rows.items())
        self.assertEqual(rows["03_iron", "512", "emulator.gmem_bytes_read"]["value"], "3584")
        self.assertEqual(rows["03_iron", "512", "emulator.gmem_bytes_read"]["gpu"], "")
        self.assertEqual(rows["03_iron", "512", "model.io_bytes"]["value"], "1048576")
        self.run_on("03", "--n", "512", "--commit", "def", "--csv", self.csv)
        again = self.rows()
        self.assertEqual(again.keys(), rows.keys())
        self.assertEqual(again["03_iron", "512", "dram__bytes_read.sum"]["commit"], "def")
        with self.csv.open(encoding="utf-8") as file:
            self.assertEqual(len(file.readlines()), len(rows) + 1)

    def test_recorded_rows_are_held_to_new_ones(self) -> None:
        self.run_on("03", "--emulator", "--n", "512", "--csv", self.csv)
        run = self.run_on("03", "04", "--emulator", "--n", "512", "--check", self.csv)  # 04 is not recorded yet
        self.assertEqual((run.returncode, run.stdout), (0, ""), run.stderr)
        self.csv.write_text(self.csv.read_text().replace(",3584,", ",3585,"))
        run = self.run_on("03", "--emulator", "--n", "512", "--check", self.csv, ends=1)
        self.assertIn("emulator.gmem_bytes_read is 3584", run.stderr)
        self.assertEqual(self.run_on("04", "--emulator", "--n", "512", "--check", self.csv).returncode, 1)

    def test_what_cannot_run_here(self) -> None:
        run = self.run_on("03", ncu=False, ends=77)
        self.assertRegex(run.stderr, "ncu is not on PATH(.|\n)*ladder explain")
        run = self.run_on("03", STUB_NO_GPU="1", ends=77)
        self.assertIn("No GPU: none here.", run.stderr)
        run = self.run_on("03", "--n", "512", STUB_NO_RIGHT="1", ends=77)
        self.assertIn("NVreg_RestrictProfilingToAdminUsers", run.stderr)

    def test_a_run_that_ncu_did_not_see(self) -> None:
        run = self.run_on("03", "04", "--n", "512", "--csv", self.csv, STUB_LOSES="03_iron", ends=1)
        self.assertIn("1 runs, but the ladder made 2", run.stderr)
        self.assertFalse(self.csv.exists())

    def test_a_metric_without_a_number_is_left_out(self) -> None:
        run = self.run_on("03", "--n", "512", "--csv", self.csv, STUB_NAN="1", ends=0)
        self.assertIn("no number for dram__bytes_read.sum", run.stderr)
        self.assertNotIn(("03_iron", "512", "dram__bytes_read.sum"), self.rows())

    def test_a_stage_that_refuses_is_left_out(self) -> None:
        self.run_on("03", "04", "--n", "512", "--causal", "--csv", self.csv, STUB_REFUSES="03_iron", ends=0)
        self.assertEqual({row["stage"] for row in self.rows().values()}, {"04_steel"})
        self.assertEqual({row["causal"] for row in self.rows().values()}, {"1"})

    def test_bad_use(self) -> None:
        self.assertIn("There is no stage 'nix'", self.run_on("nix").stderr)
        self.assertEqual(self.run_on("03", "--n", "many").returncode, 2)
        self.csv.write_text("a,b\n1,2\n")
        run = self.run_on("03", "--n", "512", "--csv", self.csv, ends=1)
        self.assertIn("its columns are not", run.stderr)


class Grid(unittest.TestCase):
    def test_the_tables_are_what_their_rounds_say(self) -> None:
        for table in sorted((DOCS / "results").glob("*_grid.csv")):
            with self.subTest(table.name):
                recorded = results.table(table)
                rung = list(recorded[0])[3]
                self.assertEqual(grid.rows([table.with_name(f"{table.stem}_rounds.csv")], rung), recorded)

    def test_a_heat_without_a_peer_is_none(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            table = Path(name) / "rounds.csv"
            lines = ["contestant,batch,heads,n,d,causal,inputs,heat,round,ms,clock_mhz,commit"]
            lines += [f"{who},1,1,128,128,0,normal,{heat},1,{ms},1000,c" for who, heat, ms in
                      ((RUNG, 1, 1.0), ("fa3", 1, 2.0), ("cudnn_bhnd", 1, 3.0), (RUNG, 2, 1.0), ("fa3", 2, 5.0))]  # fmt: skip
            table.write_text("\n".join(lines))
            (row,) = grid.rows([table], RUNG)
        self.assertEqual([each for each in row.values()][6:8], ["2.000", "3.000"])


class Formats(unittest.TestCase):
    """What is of no card, and comes out again: but for the last digits, where another library sums in another order."""

    def test_what_keys_and_values_of_few_bits_cost(self) -> None:
        for row in results.table("format_errors.csv"):
            if row["inputs"] == "normal" and (row["type"], row["per"]) in (("e4m3", "head"), ("int8", "token")):
                found = formats.error("normal", formats.of_cache(row["type"], row["per"]))
                self.assertAlmostEqual(found / float(row["error"]), 1, places=3, msg=row)

    def test_where_the_largest_weight_stands(self) -> None:
        """All of it with LADDER_WHOLE=1; otherwise of many tiles one offset."""
        recorded = results.table("weight_offsets.csv")
        self.assertEqual([(row["inputs"], row["tiles"], row["offset"]) for row in recorded],
                         [(kind, f"{tiles}", f"{offset:g}") for kind in offsets.FACTORS for tiles in offsets.TILES for offset in offsets.OFFSETS])
        whole = "LADDER_WHOLE" in os.environ
        for kind in offsets.FACTORS:
            for tiles in offsets.TILES if whole or kind == "sink" else offsets.TILES[:1]:
                asked = offsets.OFFSETS if whole or tiles == 1 else (4,)
                wanted = [row for row in recorded if (row["inputs"], row["tiles"]) == (kind, f"{tiles}") and float(row["offset"]) in asked]
                for found, row in zip(offsets.rows_of(kind, tiles, asked), wanted, strict=True):
                    for column, cell in row.items():
                        with self.subTest(column, of=(kind, tiles, row["offset"])):
                            if column in ("inputs", "room") or "" in (cell, found[column]):
                                self.assertEqual(found[column], cell)
                            else:
                                self.assertAlmostEqual(float(found[column]), float(cell), delta=0.01 * abs(float(cell)))

    def test_the_offsets_that_rungs_take_are_among_them(self) -> None:
        kernels = sorted((ROOT / "fp8").glob("f*/kernel.cuh"))
        taken = {found[1] for path in (*kernels, ROOT / "common/words/bytes.cuh")
                 if (found := re.search(r"WEIGHT_OF_MAX = ([\d.]+)f?,", path.read_text(encoding="utf-8")))}
        self.assertTrue(taken)
        self.assertLessEqual({float(offset) for offset in taken}, set(offsets.OFFSETS))


class MachineCode(unittest.TestCase):
    """What stands in docs/results/h200_counters.csv, of the ladder as it is."""

    def test_no_rung_changes_the_products_of_its_tile(self) -> None:
        # A kernel with a mask of its own, or without, stands there more than once; each has the same products.
        counts: dict[str, dict[str, dict[str, int]]] = {}
        for row in results.table("h200_counters.csv"):
            if row["metric"] == "sass.HMMA":
                counts.setdefault(row["stage"], {})[row["kernel"]] = int(row["value"])

        def products(rung: rungs.Rung, variant: rungs.Variant) -> set[int]:
            return {count for kernel, count in counts.get(rung.name, {}).items() if resources.variant_of(kernel, rung) == variant}

        rungs.known.cache_clear()
        known, compared = rungs.by_name(), 0
        for rung in known.values():
            before = known.get(rung.previous)
            if before is None or "mma" not in rung.needs or "mma" not in before.needs:
                continue
            for variant in rung.variants:
                same = next((other for other in before.variants if variant.config and other.config == variant.config), None)
                if same and products(rung, variant) and products(before, same):
                    compared += 1
                    self.assertEqual(products(rung, variant), products(before, same), f"{rung.name} and {before.name}, {variant.config}")
        self.assertGreater(compared, 0)


class Products(unittest.TestCase):
    KERNEL = """
        #include "common/gpu.cuh"
        __global__ void product(uint64_t B, float* out) {{
          float D[{tiles}][4] = {{}};
          uint32_t A[4] = {{}};
          wgmma_fence(D, A);
          {word}<true>(D, {A}, B);
          wgmma_commit();
          wgmma_wait<0>(D);
          out[threadIdx.x] = D[0][0];
        }}
    """

    @unittest.skipUnless(machine_code.find_nvcc(), "only nvcc knows which products there are")
    def test_a_width_has_an_instruction_or_does_not_compile(self) -> None:
        for word in ("wgmma_ss", "wgmma_ss_bf16", "wgmma_rs", "wgmma_rs_bf16"):
            for tiles in (4, 5, 8):
                with self.subTest(word, tiles=tiles), tempfile.TemporaryDirectory() as folder:
                    source, ptx = Path(folder) / "product.cu", Path(folder) / "product.ptx"
                    source.write_text(self.KERNEL.format(word=word, tiles=tiles, A="A" if "_rs" in word else "B"))
                    run = subprocess.run([machine_code.find_nvcc(), "-std=c++20", f"-I{ROOT}", "-gencode=arch=compute_90a,code=compute_90a", "-ptx", "-o", ptx, source],
                                         capture_output=True, text=True)
                    if tiles == 5:
                        self.assertIn("no operand list for this N", run.stderr)
                    else:
                        self.assertEqual(run.returncode, 0, run.stderr[:2000])
                        self.assertIn(f"m64n{8 * tiles}k16", ptx.read_text())

    @unittest.skipUnless(shutil.which("nm"), "nm says which products there are in the program")
    def test_every_product_that_rungs_run_has_a_conformance_case(self) -> None:
        names = subprocess.run(["nm", "-C", rungs.program()], capture_output=True, text=True, check=True).stdout
        run = {(word, int(tiles) * 8, transposed == "true")
               for word, transposed, tiles in re.findall(r"\b(wgmma_[rs]s\w*)<(?:(true|false), )?(\d+)>\(", names)}
        cases = (ROOT / "harness" / "conformance" / "cases.hpp").read_text(encoding="utf-8")
        there = {(word + (f"_{element.replace('int8_t', 's8')}" if element else ""), int(columns), transposed == "true")
                 for word, columns, transposed, element in re.findall(r"(wgmma_[rs]s)_case<(\d+), (true|false)(?:, (\w+)(?:, \w+)?)?>", cases)}
        self.assertGreater(len(run), 20)
        self.assertEqual(sorted(run - there), [], "word, columns, TRANS_B: harness/conformance/cases.hpp has no case of it")


class RungDiff(unittest.TestCase):
    def run_on(self, kernels: dict[str, str], *arguments: str, chain: dict[str, str] | None = None, parts: str = "",
               more: dict[str, str] | None = None, ends: int | None = None) -> subprocess.CompletedProcess:
        """On kernels by directory, each of which starts from the one before it, or from what `chain` says; of those in `more` it is said why they change more lines."""
        with tempfile.TemporaryDirectory() as name:
            described, before = [], ""
            (Path(name) / "common" / "words").mkdir(parents=True)
            (Path(name) / "common" / "words" / "some.cuh").write_text(parts)
            for directory, text in kernels.items():
                (Path(name) / directory).mkdir(parents=True)
                (Path(name) / directory / "kernel.cuh").write_text(text)
                part, _, rung = directory.rpartition("/")
                described.append(fake_ladder.rung(rung, (chain or {}).get(rung, before), part, more_lines={"why": (more or {}).get(rung, ""), "reason": "A reason."}))
                before = rung
            program = fake_ladder.write(Path(name) / "ladder", described)
            return ended(subprocess.run([sys.executable, "-m", "tools.evidence.rung_diff", *arguments], capture_output=True, text=True,
                                        env={**os.environ, "LADDER": str(program), "LADDER_ROOT": name}), ends)

    kernels = {"01_wood": "a\nb\nc\nd\n", "02_next": "a\nB\nB2\nc\n", "03_more": "a\nB\nB2\nc\n"}

    def test_counts_a_replaced_line_once(self) -> None:
        run = self.run_on(self.kernels, "--most", "3", ends=0)
        # b became B and B2: 2; d was removed: 1.
        self.assertRegex(run.stdout, r"^02_next +3 changed lines since 01_wood\n03_more +0 changed lines since 02_next\n$")

    def test_every_rung_is_compared_with_the_one_that_it_starts_from(self) -> None:
        run = self.run_on({"00_stone": "x\n", "side/p01_clay": "a\n", "side/p02_mud": "a\nb\n", "01_wood": "y\n"}, "--most", "1",
                          chain={"01_wood": "00_stone"}, ends=0)
        self.assertRegex(run.stdout, r"^p01_clay +1 changed lines since 00_stone\np02_mud +1 changed lines since p01_clay\n"
                                     r"01_wood +1 changed lines since 00_stone\n$")

    def test_the_first_rung_has_nothing_before_it(self) -> None:
        run = self.run_on(self.kernels, "1", ends=0)
        self.assertEqual(run.stdout, "01_wood is the first rung; there is nothing before it to compare with.\n")

    def test_too_many(self) -> None:
        run = self.run_on(self.kernels, "--most", "2", ends=1)
        self.assertRegex(run.stderr, "^02_next: 3 changed lines, more than 2: .* more_lines.\n$")

    def test_lines_that_are_said_as_a_part_are_no_change(self) -> None:
        kernels = {"01_wood": "a\nb\nc\nd\ne\n", "02_next": '#include "common/words/some.cuh"\na\nD\n'}
        parts = "  b\nc\n  e\n"
        self.assertEqual(self.run_on(kernels, "--most", "3").returncode, 1)
        run = self.run_on(kernels, "--most", "3", parts=parts, ends=0)
        self.assertIn(" 5 changed lines since 01_wood, 3 of them said as parts\n", run.stdout)
        self.assertEqual(self.run_on(kernels, "--most", "1", parts=parts).returncode, 1)

    def test_a_rung_may_say_why_it_changes_more(self) -> None:
        for most, most_new, why, faults in ((2, 3, "new", 0), (1, 2, "new", 1), (1, 2, "port", 0), (1, 2, "rebuilt", 0), (1, 2, "other", 0), (3, 4, "other", 1)):
            run = self.run_on(self.kernels, "--most", str(most), "--most-new", str(most_new), more={"02_next": why})
            with self.subTest(most=most, why=why):
                self.assertEqual((run.returncode, run.stderr.count("\n"), run.stderr.count("02_next: 3 ")), (faults, faults, faults), run.stderr)
                self.assertIn(f"02_next            3 changed lines since 01_wood; {why}: A reason.\n", run.stdout)

    def test_shows_one_stage_by_any_of_its_names(self) -> None:
        for name in ("2", "02", "next", "02_next", "02_next/", "NEXT"):
            run = self.run_on(self.kernels, name, ends=0)
            self.assertIn("+B2\n", run.stdout)
            self.assertIn("02_next: 3 changed lines since 01_wood\n", run.stdout)

    def test_new_spacing_is_counted_and_not_shown(self) -> None:
        kernels = {"01_wood": "a\nb\nc\nd\n", "02_next": "a\n  b\n  c\nD\n"}
        run = self.run_on(kernels, "02")
        self.assertIn("\n-d\n+D\n", run.stdout)
        self.assertNotRegex(run.stdout, r"(?m)^[-+] *[bc]$")
        self.assertIn("02_next: 3 changed lines since 01_wood, 2 of them by spacing alone (not shown)\n", run.stdout)
        self.assertEqual(self.run_on(kernels, "--most", "2").returncode, 1)  # the limit counts them

    def test_bad_use(self) -> None:
        for arguments in ((), ("--most",), ("--most", "x"), ("--most", "0", "02_next=3"), ("--most", "0", "--most-new", "x")):
            run = self.run_on(self.kernels, *arguments, ends=2)
            self.assertIn("usage: rung_diff", run.stderr)
        run = self.run_on(self.kernels, "9", ends=2)
        self.assertIn("Nearest: 03_more, 02_next, 01_wood.", run.stderr)


if __name__ == "__main__":
    unittest.main()
