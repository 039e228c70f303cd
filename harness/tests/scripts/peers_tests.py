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
           "seed": 1, "softmax_scale": 128**-0.5, "tensors": {"Q": "no", "K": "such", "V": "file", "O": "here"}}
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

    def test_flash_attn_packages_are_optional(self) -> None:
        for peer, module in (("fa2_source.py", "flash_attn"), ("fa3.py", "flash_attn_interface")):
            answer, = self.answers(peer, REQUEST, torch=TORCH.format(gpu=True), **{module: ABSENT})
            self.assertEqual(answer, {"ok": False, "reason": f"no {module}: none here"})

    def test_each_request_reaches_the_contestant(self) -> None:
        """A peer without a GPU, whose output is a list of numbers."""
        peer = self.folder / "peer.py"
        peer.write_text(f"import sys; sys.path.insert(0, {str(PEERS)!r})" + """
from torch_peer import Contestant, serve

class Numbers(Contestant):
    output = []
    def launch(self, launches): self.output = [launches] * 4
    def poison(self): self.output = ["poison"] * 4
    def write_output(self, rows): open(sys.argv[1], "w").write(repr([self.output[row] for row in rows]))
    def answer(self): return {"name": "numbers", "version": "1"}

serve(lambda request: Numbers())
""")
        events = "cuda.synchronize = int\ncuda.Event = lambda **_: SimpleNamespace(record=int, synchronize=int, elapsed_time=lambda _: 7.0)\n"
        output = self.folder / "output"
        peer.write_text(peer.read_text().replace("sys.argv[1]", repr(str(output))))
        requests = [REQUEST, {"op": "run", "launches": 3}, {"op": "poison"}, {"op": "output", "rows": [2, 0]}, {"op": "sing"}]
        answers = self.answers(peer, *requests, torch=TORCH.format(gpu=True) + events)
        self.assertEqual(answers, [{"ok": True, "protocol": 2, "name": "numbers", "version": "1"}, {"ok": True, "ms": 7.0}, {"ok": True},
                                   {"ok": True}, {"ok": False, "reason": "no operation 'sing'"}])
        self.assertEqual(output.read_text(), "['poison', 'poison']")


if __name__ == "__main__":
    unittest.main()
