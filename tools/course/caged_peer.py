"""A peer of the bench in a cage: it stands between `ladder compare` and a stranger's kernel on the GPU.

Requests and answers go through it line by line. The tensors lie where nobody but the judge can read; what is in the cage sees links
to the inputs, and one file of its own for the rows that it is asked for.

    python3 -m tools.course.caged_peer CAGE MEMORY PREFIX NAME PROGRAM      started by speed.py; folders of the links are called PREFIX...
"""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tools.course import cage as cages

MOST_LINE = 1 << 16


class CagedPeer:
    def __init__(self, cage: cages.Cage, program: Path, name: str, prefix: str):
        self.cage, self.program, self.name, self.prefix = cage, program, name, prefix
        self.folder = Path()
        self.output = Path()  # where the judge looks for it
        self.process = None
        self.said = b""  # the end of its standard error
        self.stopped = ""

    def prepare(self, request: dict) -> dict:
        """The request as it is to be asked in the cage, which begins here."""
        tensors = {name: Path(path) for name, path in request["tensors"].items()}
        self.output = tensors["O"]
        self.folder = Path(tempfile.mkdtemp(prefix=self.prefix, dir=self.output.parent.parent))  # of the same file system
        self.folder.chmod(0o755)
        inside = {name: self.folder / name for name in tensors}
        for name, path in tensors.items():
            if name != "O":
                try:
                    os.link(path, inside[name])
                except OSError:
                    shutil.copyfile(path, inside[name])
                inside[name].chmod(0o644)
        inside["O"].touch()
        inside["O"].chmod(0o666)
        reads = [self.program, *(path for name, path in inside.items() if name != "O")]
        self.process = self.cage.start([str(self.program)], str(self.folder) if not self.cage.closed else "", reads, [inside["O"]])
        self.listener = threading.Thread(target=self._listen, daemon=True)
        for thread in (threading.Thread(target=self._watch, daemon=True), self.listener):
            thread.start()
        return request | {"tensors": {name: str(path) for name, path in inside.items()}}

    def _watch(self) -> None:
        while self.process.poll() is None:
            held = cages.family(self.process.pid)
            if sum(size for _, size in held.values()) > self.cage.limits.memory:
                self.stopped = "It was stopped, because it took too much memory."
                for process in held:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
            time.sleep(cages.LOOK_S)

    def _listen(self) -> None:
        while part := os.read(self.process.stderr.fileno(), 1 << 12):
            self.said = (self.said + part)[-2000:]

    def asked(self, line: str) -> str:
        request = json.loads(line)
        if request["op"] == "prepare":
            if self.process:
                return json.dumps({"ok": False, "reason": "one problem for each process"})
            line = json.dumps(self.prepare(request)) + "\n"
        if not self.process:
            return json.dumps({"ok": False, "reason": "nothing is prepared"})
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
            answer = self.process.stdout.readline(MOST_LINE).decode(errors="replace").strip()
        except OSError:
            answer = ""
        if not answer:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
                self.listener.join(20)
            words = self.stopped or self.said.decode(errors="replace").strip() or f"its process ended, with {self.process.poll()}"
            return json.dumps({"ok": False, "reason": words[-150:]})
        if request["op"] == "output":
            most = len(request["rows"]) * self.row_bytes
            with (self.folder / "O").open("rb") as file:
                self.output.write_bytes(file.read(most))
        elif request["op"] == "prepare":
            self.row_bytes = 2 * request["d"]
            with contextlib.suppress(ValueError, TypeError, KeyError):
                if json.loads(answer)["ok"] is True:  # who it is, and that it is judged, is not for a stranger to say
                    return json.dumps({"ok": True, "protocol": 2, "name": self.name, "version": ""})
        return answer

    def end(self) -> None:
        if self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    kind, memory, prefix, name, program = arguments
    cages.end_with_parent()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # Seconds are the bench's affair, which waits for no answer for ever; these bound the processor.
    limits = cages.Limits(seconds=900, memory=int(memory), files=1024)
    before = cages.adopt()
    peer = CagedPeer(cages.Cage(kind, [], limits, gpu=True), Path(program), name, prefix)
    try:
        for line in sys.stdin:
            if json.loads(line)["op"] == "quit":
                break
            print(peer.asked(line), flush=True)
    finally:
        cages.end_all(before)
        peer.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
