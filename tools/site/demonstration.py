"""Two wrong kernels, and what `./ladder try` says of them. One lacks a wait: tools/site/recorded/without_wait.json, which the front page
shows. The other has no running maximum: no_running_max.csv there, a table in docs/softmax.md. With --check nothing is written: exits 1
when something would differ."""
from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools import rungs
from tools.mutants import invented
from tools.paths import SITE
from tools.site import generated

RUNG, CUT = "03_kvpipe", "cp_async_wait<"  # its last wait goes
COMMAND = ["try", f"{RUNG}/kernel.cuh", "--n", "256"]
FILE = SITE / "recorded" / "without_wait.json"
FORGOTTEN, TABLE = "no_running_max", SITE / "recorded" / "no_running_max.csv"
SETS = {"normal": "N(0, 1)", "large_logits": "Q and K of standard deviation 8"}
SECONDS = re.compile(r" +\d+\.\d\d s\b| +time$")


def without_the_last_wait(text: str) -> tuple[str, int, str]:
    """The kernel without it; the line's number and its text. Its place stays, empty, so that all other lines keep
    theirs."""
    lines = text.split("\n")
    number = max(n for n, line in enumerate(lines) if CUT in line)
    cut, lines[number] = lines[number], ""
    return "\n".join(lines), number + 1, cut.strip()


def run() -> dict:
    rung = rungs.by_name()[RUNG]
    text, line, cut = without_the_last_wait(rung.kernel.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder, RUNG, "kernel.cuh")
        changed.parent.mkdir()
        changed.write_text(text, encoding="utf-8")
        ended = subprocess.run([rungs.program().resolve(), *COMMAND], capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"}, cwd=folder)
    return {"file": f"{rung.directory}/kernel.cuh", "line": line, "cut": cut, "command": f"./ladder {' '.join(COMMAND)}", "exit": ended.returncode,
            "report": [SECONDS.sub("", row).rstrip() for row in ended.stdout.strip().split("\n")]}


def forgotten() -> str:
    """A table: the wrong kernel beside the right one that it is made of, on inputs that hide the fault and on others."""
    wrong = next(one for one in invented.parsed(invented.FILE.read_text(encoding="utf-8")) if one.name == FORGOTTEN)
    rung = rungs.named(wrong.rung)
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["inputs", "kernel", "largest error", "tolerance", "verdict", "what the check says"])
    with tempfile.TemporaryDirectory() as name:
        kernel = Path(name, "kernel.cuh")
        kernel.write_text(wrong.kernel(rung.kernel.read_text(encoding="utf-8")), encoding="utf-8")
        for inputs, words in SETS.items():
            problem = ["--inputs", inputs, "--batch", "1", "--heads", "1", "--n", "256", "--json", "-"]
            for what, command in (("right", ["check", rung.name, "--on", "cpu"]), (FORGOTTEN, ["try", str(kernel), "--like", rung.name])):
                ended = subprocess.run([rungs.program(), *command, *problem], capture_output=True, text=True)
                if ended.returncode not in (0, 1):
                    raise rungs.RungsError(ended.stderr)
                row = json.loads(ended.stdout)[0]
                table.writerow([words, what, "NaN" if row["max_err"] is None else f"{row['max_err']:.3g}", f"{row['tolerance']:.3g}",
                                "accepted" if row["ok"] else "rejected", "" if row["ok"] else row["failures"][0]["message"].replace(f"{kernel.parent.name}/", "")])
    return out.getvalue()


def made() -> Iterator[tuple[Path, str]]:
    yield FILE, json.dumps(run(), indent=1) + "\n"
    yield TABLE, forgotten()


def main() -> int:
    return generated.run(generated.parser(__doc__).parse_args(), made)


if __name__ == "__main__":
    sys.exit(main())
