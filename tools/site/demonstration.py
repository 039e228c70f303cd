"""Takes a wait out of a kernel, compiles what is left, has it checked on the emulator, and keeps what the check says:
tools/site/recorded/without_wait.json, which the front page shows. With --check nothing is written: exits 1 when it would
differ."""
from __future__ import annotations

import argparse
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
from tools.mutants.program import Build, BuildError, run_tool
from tools.paths import ROOT, SITE

RUNG, CUT = "03_kvpipe", "cp_async_wait<"  # its last wait goes
COMMAND = ["check", RUNG[:2], "--on", "cpu", "--n", "256"]
FILE = SITE / "recorded" / "without_wait.json"
SECONDS = re.compile(r" +\d+\.\d\d s\b")


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
            "exit": ended.returncode, "report": [SECONDS.sub("", row).rstrip() for row in said.strip().split("\n") if "left" not in row]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="a build directory made with Ninja (default: build)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the recorded report is stale")
    arguments = parser.parse_args()
    try:
        text = json.dumps(run(arguments.build.resolve()), indent=1) + "\n"
    except (BuildError, rungs.RungsError) as error:
        print(error, file=sys.stderr)
        return 2
    if not arguments.check:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE.relative_to(ROOT)} is not what a run says today; run: python3 -m tools.site.demonstration\n{text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
