"""The peers of harness/peers as the bench meets them on machines that lack what they need. The Python packages are stubs."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PEERS = Path(__file__).resolve().parents[3] / "harness" / "peers"
REQUEST = {"op": "prepare", "batch": 1, "heads": 1, "n": 256, "d": 128, "causal": False, "dtype": "fp16", "inputs": "normal",
           "seed": 1}
ABSENT = "raise ImportError('none here')\n"
TORCH = "from types import SimpleNamespace\n__version__ = 'stub'\ncuda = SimpleNamespace(" \
        "is_available=lambda: {gpu}, empty_cache=lambda: None)\n"
TRITON = "jit = lambda function: function\nautotune = lambda **_: jit\nConfig = lambda *_, **__: None\n"


class Peers(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def answers(self, peer: str, *requests: dict, **modules: str) -> list[dict]:
        for name, text in modules.items():
            (self.folder / name).mkdir(exist_ok=True)
            (self.folder / name / "__init__.py").write_text(text)
        if "triton" in modules:
            (self.folder / "triton" / "language.py").write_text("constexpr = None\n")
        run = subprocess.run([sys.executable, PEERS / peer], input="".join(json.dumps(request) + "\n" for request in requests),
                             capture_output=True, text=True, timeout=1200, env={**os.environ, "PYTHONPATH": str(self.folder)})
        self.assertEqual(run.returncode, 0, run.stderr)
        return [json.loads(line) for line in run.stdout.splitlines()]

    def test_every_peer_says_what_it_lacks(self) -> None:
        peers = [path.name for path in sorted(PEERS.iterdir()) if path.is_file() and os.access(path, os.X_OK)]
        self.assertIn("triton_flash.py", peers)
        for peer in peers:
            for torch, reason in ((ABSENT, "no PyTorch: none here"), (TORCH.format(gpu=False), "PyTorch finds no GPU")):
                answers = self.answers(peer, REQUEST, {"op": "run", "launches": 1}, {"op": "quit"}, torch=torch, triton=ABSENT)
                self.assertEqual(answers, [{"ok": False, "reason": reason}, {"ok": False, "reason": "nothing is prepared"}])

    def test_triton(self) -> None:
        def reason(triton: str, **changes: object) -> str:
            answer, = self.answers("triton_flash.py", {**REQUEST, **changes}, torch=TORCH.format(gpu=True), triton=triton)
            self.assertFalse(answer["ok"])
            return answer["reason"]

        self.assertEqual(reason(ABSENT), "no Triton: none here")
        self.assertIn("n must be a multiple of 128", reason(TRITON, n=192))
        self.assertIn("d must be 64 or 128", reason(TRITON, d=96))
        self.assertIn("no inputs of type bf16", reason(TRITON, dtype="bf16"))

    def test_a_group_is_poisoned_before_and_verified_after(self) -> None:
        """A peer without a GPU: its output is one number, and every second launch does not write it."""
        peer = self.folder / "peer.py"
        peer.write_text(f"import sys; sys.path.insert(0, {str(PEERS)!r})" + """
import math
from torch_peer import Contestant, Refusal, serve

class OneNumber(Contestant):
    launches = 0
    def launch(self, launches):
        self.launches += 1
        if self.launches % 2: self.output = 1.0
    def before(self): self.output = math.nan
    def after(self):
        if not self.output == 1.0: raise Refusal(f"its output is {self.output}")
    def answer(self): return {"name": "one"}

serve(lambda request: OneNumber())
""")
        events = "cuda.Event = lambda **_: SimpleNamespace(record=int, synchronize=int, elapsed_time=lambda _: 7.0)\n"
        runs = [{"op": "run", "launches": 1}] * 3
        self.assertEqual(self.answers(peer, REQUEST, *runs, torch=TORCH.format(gpu=True) + events),
                         [{"ok": True, "name": "one"}, {"ok": True, "ms": 7.0}, {"ok": False, "reason": "its output is nan"},
                          {"ok": True, "ms": 7.0}])



if __name__ == "__main__":
    unittest.main()
