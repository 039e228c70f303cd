"""Two wrong kernels, and what the check on the emulator says of them. One lacks a wait: tools/site/recorded/without_wait.json, which
the front page shows. The other has no running maximum: no_running_max.csv there, a table in docs/softmax.md. With --check nothing
is written: exits 1 when something would differ."""
from __future__ import annotations

import argparse
import csv
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import rungs
from tools.mutants import invented
from tools.mutants.program import Build, BuildError, run_tool
from tools.paths import ROOT, SITE

RUNG, CUT = "03_kvpipe", "cp_async_wait<"  # its last wait goes
COMMAND = ["check", RUNG[:2], "--on", "cpu", "--n", "256"]
FILE = SITE / "recorded" / "without_wait.json"
FORGOTTEN, TABLE = "no_running_max", SITE / "recorded" / "no_running_max.csv"
SETS = {"normal": "N(0, 1)", "large_logits": "Q and K of standard deviation 8"}
SECONDS = re.compile(r" +\d+\.\d\d s\b")
HEADING = re.compile(r" +time$")  # stands further right where the seconds have one digit more


def without_the_last_wait(text: str) -> tuple[str, int, str]:
    """The kernel without it; the line's number and its text. Its place stays, empty, so that all other lines keep
    theirs."""
    lines = text.split("\n")
    number = max(n for n, line in enumerate(lines) if CUT in line)
    cut, lines[number] = lines[number], ""
    return "\n".join(lines), number + 1, cut.strip()


def compiled(build: Build, rung: Path, changed: Path, folder: Path) -> Path:
    """The ladder with the changed rung in its place, linked as the ladder is."""
    program, link = folder / "ladder", build.link_command("ladder")
    for arguments, output in build.commands_including(rung / "stage.cu"):
        generated = next(Path(entry["directory"], entry["file"]) for entry in build.entries if entry.get("output") == output)
        source = folder / f"{Path(output).parent.parent.name}.cpp"
        source.write_text(generated.read_text().replace(f'"{rung / "stage.cu"}"', f'"{changed / "stage.cu"}"'))
        result = run_tool([*arguments, "-c", str(source), "-o", str(source.with_suffix(".o"))], build.directory)
        if result.returncode != 0:
            raise BuildError(result.stderr[:2000])
        link = link.replace(output, str(source.with_suffix(".o")))
    result = run_tool(link.replace("-o ladder", f"-o {shlex.quote(str(program))}"), build.directory)
    if result.returncode != 0:
        raise BuildError(result.stderr[:2000])
    return program


def run(directory: Path) -> dict:
    rung = rungs.by_name()[RUNG]
    build = Build(directory)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        changed = folder / RUNG
        shutil.copytree(rung.path, changed)
        text, line, cut = without_the_last_wait((rung.path / "kernel.cuh").read_text(encoding="utf-8"))
        (changed / "kernel.cuh").write_text(text, encoding="utf-8")
        program = compiled(build, rung.path, changed, folder)
        ended = subprocess.run([program, *COMMAND], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, cwd=ROOT)
        said = (ended.stdout + ended.stderr).replace(f"{folder}/", "")
    return {"file": f"{rung.directory}/kernel.cuh", "line": line, "cut": cut, "command": "./ladder " + " ".join(COMMAND[:2] + COMMAND[4:]),
            "exit": ended.returncode, "report": [SECONDS.sub("", HEADING.sub("    time", row)).rstrip() for row in said.strip().split("\n") if "left" not in row]}


def forgotten(directory: Path) -> str:
    """A table: the wrong kernel beside the right one that it is made of, on inputs that hide the fault and on others."""
    wrong = next(one for one in invented.parsed(invented.FILE.read_text(encoding="utf-8")) if one.name == FORGOTTEN)
    rung = rungs.named(wrong.rung)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["inputs", "kernel", "largest error", "tolerance", "verdict", "what the check says"])
    with tempfile.TemporaryDirectory() as name:
        kernel = Path(name, "kernel.cuh")
        kernel.write_text(wrong.kernel((rung.path / "kernel.cuh").read_text(encoding="utf-8")), encoding="utf-8")
        for inputs, words in SETS.items():
            problem = ["--inputs", inputs, "--batch", "1", "--heads", "1", "--n", "256", "--json", "-"]
            for what, command in (("right", ["check", rung.name, "--on", "cpu"]), (FORGOTTEN, ["try", str(kernel), "--like", rung.name])):
                ended = subprocess.run([directory / "ladder", *command, *problem], capture_output=True, text=True)
                if ended.returncode not in (0, 1):
                    raise BuildError(ended.stderr)
                row = json.loads(ended.stdout)[0]
                table.writerow([words, what, "NaN" if row["max_err"] is None else f"{row['max_err']:.3g}", f"{row['tolerance']:.3g}",
                                "accepted" if row["ok"] else "rejected", "" if row["ok"] else row["failures"][0]["message"]])
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="a build directory made with Ninja (default: build)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the recorded report is stale")
    arguments = parser.parse_args()
    directory, stale = arguments.build.resolve(), 0
    try:
        for file, text in ((FILE, json.dumps(run(directory), indent=1) + "\n"), (TABLE, forgotten(directory))):
            if not arguments.check:
                file.write_text(text, encoding="utf-8")
            elif not file.is_file() or file.read_text(encoding="utf-8") != text:
                print(f"{file.relative_to(ROOT)} is not what a run says today; run: python3 -m tools.site.demonstration\n{text}", file=sys.stderr)
                stale = 1
    except (BuildError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    return stale


if __name__ == "__main__":
    sys.exit(main())
