"""The peers of harness/peers as the bench meets them on machines that lack what they need. The Python packages are stubs."""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools.paths import ROOT

PEERS = ROOT / "harness" / "peers"
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

    def test_flex_attention_is_for_masks_with_holes_alone(self) -> None:
        for features, reason in ((["causal"], "problems with intervals of keys or lists of blocks alone here"), (["causal", "intervals", "softcap"], "no softcap here")):
            for peer, more in (("flex.py", {}), ("flex_bwd.py", {"dO": "file", "dQ": "here"})):
                request = {**REQUEST, "features": features + ["backward"] * bool(more), "tensors": {**REQUEST["tensors"], **more}}
                answer, = self.answers(peer, request, torch=TORCH.format(gpu=True))
                self.assertEqual(answer, {"ok": False, "reason": reason})

    def test_gradients_are_a_problem_of_their_own(self) -> None:
        (self.folder / "xformers").mkdir()  # one without the extension, before any that is installed
        for peer, features, reason in (("fa2_bwd.py", ["causal"], "gradients alone here"), ("cudnn_bwd.py", [], "gradients alone here"),
                                       ("fa3_bwd.py", [], "gradients alone here"), ("fa3_bwd.py", ["backward"], "no xformers with a flash_attn_3/_C.so"),
                                       ("fa2.py", ["backward"], "no backward here"), ("flex_bwd.py", ["intervals"], "gradients alone here"), ("fa2_bwd.py", ["backward", "softcap"], "no softcap here")):
            answer, = self.answers(peer, {**REQUEST, "features": features, "tensors": {**REQUEST["tensors"], "dO": "file", "dQ": "here"}},
                                   torch=TORCH.format(gpu=True))
            self.assertEqual(answer, {"ok": False, "reason": reason})

    def test_flash_attention_3_is_asked_for_gradients(self) -> None:
        extension = self.folder / "xformers/flash_attn_3/_C.so"
        extension.parent.mkdir(parents=True)
        extension.touch()
        files = {**dict.fromkeys(("O", "LSE", "dO"), "file"), "dQ": "here"}
        request = {**REQUEST, "features": ["backward", "causal"], "causal": True, "tensors": {**REQUEST["tensors"], **files}}
        for peer, deterministic in (("fa3_bwd", False), ("fa3_bwd_inorder", True)):
            answer, = self.answers(f"{peer}.py", request, torch=self.fake_torch(), xformers="raise SystemExit('imported')\n")
            self.assertEqual((answer["ok"], answer["name"]), (True, peer), answer)
            self.assertIn({"bwd": [9, [None] * 6, REQUEST["softmax_scale"], True, -1, -1, 0.0, deterministic, 0]}, self.said())

    def test_flash_attn_packages_are_optional(self) -> None:
        (self.folder / "xformers").mkdir()  # one without the extension, before any that is installed
        for peer, module, more in (("fa2_source.py", "flash_attn", ""), ("fa3.py", "flash_attn_interface", "; no xformers with a flash_attn_3/_C.so")):
            answer, = self.answers(peer, REQUEST, torch=TORCH.format(gpu=True), **{module: ABSENT})
            self.assertEqual(answer, {"ok": False, "reason": f"no {module}: none here{more}"})

    def test_flash_attention_4(self) -> None:
        for peer in ("fa4", "fa4_bwd", "fa4_bwd_inorder"):
            answer, = self.answers(f"{peer}.py", {**REQUEST, "features": ["backward"] * ("bwd" in peer)}, torch=self.fake_torch(), flash_attn=ABSENT)
            self.assertEqual(answer, {"ok": False, "reason": "no flash-attn-4: none here"})
        metadata = self.folder / "flash_attn_4-4.0.0b36.dist-info/METADATA"
        metadata.parent.mkdir()
        metadata.write_text("Metadata-Version: 2.1\nName: flash-attn-4\nVersion: 4.0.0b36\n")
        package = {"flash_attn": "", "flash_attn/cute": "import torch\ndef flash_attn_func(*tensors, softmax_scale, causal, window_size):\n"
                   "    torch.say(module=[len(tensors), softmax_scale, causal, window_size])\n    return tensors[0], None\n",
                   "flash_attn/cute/interface": "import torch\ndef _flash_attn_bwd(*tensors, dq, dk, dv, **options):\n"
                   "    torch.say(bwd=[len(tensors), options])\n"}
        for causal, window, asked in ((True, [255, 0], [255, 0]), (False, [-1, -1], [None, None])):
            request = {**REQUEST, "causal": causal, "window": window, "features": ["window"]}
            answer, = self.answers("fa4.py", request, torch=self.fake_torch(), **package)
            self.assertEqual(answer, {"ok": True, "protocol": 3, "name": "fa4", "version": "flash-attn-4 4.0.0b36, pytorch stub"})
            self.assertEqual(self.said(), [{"module": [3, REQUEST["softmax_scale"], causal, asked]}])
        files = {**dict.fromkeys(("O", "LSE", "dO"), "file"), "dQ": "here"}
        request = {**REQUEST, "features": ["backward"], "tensors": {**REQUEST["tensors"], **files}}
        for peer, deterministic in (("fa4_bwd", False), ("fa4_bwd_inorder", True)):
            answer, = self.answers(f"{peer}.py", request, torch=self.fake_torch(), **package)
            self.assertEqual((answer["ok"], answer["name"]), (True, peer), answer)
            options = {"softmax_scale": REQUEST["softmax_scale"], "causal": False, "window_size_left": None, "window_size_right": None}
            self.assertIn({"bwd": [6, {**options, "deterministic": deterministic}]}, self.said())

    def test_flash_attn_packages_are_called(self) -> None:
        package = "import torch\n__version__ = '3.1'\ndef flash_attn_func(*tensors, softmax_scale, causal, window_size):\n" \
                  "    torch.say(module=[len(tensors), softmax_scale, causal, window_size])\n    return tensors[0], None\n"
        for peer, module in (("fa2_source.py", "flash_attn"), ("fa3.py", "flash_attn_interface")):
            with self.subTest(peer):
                request = {**REQUEST, "causal": True, "window": [255, 0], "features": ["causal", "window"]}
                answer, = self.answers(peer, request, torch=self.fake_torch(), **{module: package})
                self.assertEqual(answer, {"ok": True, "protocol": 3, "name": peer[:-3], "version": f"{module} 3.1, pytorch stub"})
                self.assertEqual(self.said(), [{"module": [3, REQUEST["softmax_scale"], True, [255, 0]]}])

    def test_flash_attention_3_of_xformers(self) -> None:
        """Without flash_attn_interface: the extension file alone, after the CUDA runtime that it needs, and xformers is not imported."""
        extension, runtime = self.folder / "xformers/flash_attn_3/_C.so", self.folder / "nvidia/cuda_runtime/lib/libcudart.so.12"
        for file in (extension, self.folder / "xformers-0.0.34.dist-info/METADATA"):
            file.parent.mkdir(parents=True)
            file.write_text("Metadata-Version: 2.1\nName: xformers\nVersion: 0.0.34\n")
        modules = {"torch": self.fake_torch(), "flash_attn_interface": ABSENT, "xformers": "raise SystemExit('imported')\n"}
        call = {"fwd": [3, [None] * 20, REQUEST["softmax_scale"], True, -1, -1, 0, 0.0, True, None, 1, None, 0]}
        for loaded in ([], [{"CDLL": [str(runtime), True]}]):  # without the package of the CUDA runtime, and with it
            if loaded:
                runtime.parent.mkdir(parents=True)
                runtime.touch()
            answer, = self.answers("fa3.py", {**REQUEST, "causal": True}, **modules)
            self.assertEqual(answer, {"ok": True, "protocol": 3, "name": "fa3",
                                      "version": "flash_attn_interface as xformers 0.0.34 builds it, pytorch stub"})
            self.assertEqual([event for event in self.said() if "CDLL" not in event or runtime.exists()], [*loaded, {"load": str(extension)}, call])
        answer, = self.answers("fa3.py", REQUEST, **{**modules, "torch": self.fake_torch("raise OSError('libcudart.so.12: not found')")})
        self.assertEqual(answer["reason"], "no flash_attn_interface: none here; xformers' FlashAttention-3 does not load: libcudart.so.12: not found")

    def fake_torch(self, load: str = "say(load=path)") -> str:
        """Tensors that are nothing but their names; what is called stands in a file, a line of JSON each."""
        return TORCH.format(gpu=True) + f"""
import contextlib, ctypes, json
float16 = float32 = None
no_grad = contextlib.nullcontext

class Tensor:
    def __getattr__(self, name): return lambda *_, **__: self

from_file = empty_like = lambda *_, **__: Tensor()

def say(**what): open({str(self.folder / "said")!r}, "a").write(json.dumps(what) + "\\n")
def load_library(path): {load}
def fwd(q, k, v, *rest):
    say(fwd=[sum(isinstance(each, Tensor) for each in (q, k, v)), rest[:20], *rest[20:]])
    return q, None
def bwd(*given):
    say(bwd=[sum(isinstance(each, Tensor) for each in given[:9]), given[9:15], *given[15:]])
ops = SimpleNamespace(load_library=load_library, flash_attn_3=SimpleNamespace(fwd=fwd, bwd=bwd))
ctypes.CDLL = lambda path, mode: say(CDLL=[path, mode == ctypes.RTLD_GLOBAL])
"""

    def said(self) -> list[dict]:
        file = self.folder / "said"
        events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        file.unlink(missing_ok=True)
        return events

    def test_the_peer_of_the_page_is_one(self) -> None:
        page = (PEERS / "README.md").read_text(encoding="utf-8")
        code, = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
        (self.folder / "mine.py").write_text(code)
        shutil.copy(PEERS / "torch_peer.py", self.folder)
        kernel = "import torch\ndef attention(*tensors, scale, causal, out): torch.say(kernel=[len(tensors), scale, causal, out is not None])\n"
        answer, = self.answers(str(self.folder / "mine.py"), REQUEST, torch=self.fake_torch(), my_kernels=kernel)
        self.assertEqual(answer, {"ok": True, "protocol": 3, "name": "mine", "version": "pytorch stub"})
        self.assertEqual(self.said(), [{"kernel": [3, REQUEST["softmax_scale"], False, True]}])

    def test_the_commands_for_the_example_stand_a_line_each(self) -> None:
        page, source = ((PEERS / name).read_text(encoding="utf-8").splitlines() for name in ("README.md", "example.cu"))
        for compiler in ("nvcc", "g++"):
            command, = [line.partition("  #")[0].strip() for line in page if line.startswith(f"{compiler} ")]
            self.assertRegex(command, r" harness/peers/example\.cu -o example$")
            self.assertIn(f"//   {command}", source)

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
        self.assertEqual(answers, [{"ok": True, "protocol": 3, "name": "numbers", "version": "1"}, {"ok": True, "ms": 7.0}, {"ok": True},
                                   {"ok": True}, {"ok": False, "reason": "no operation 'sing'"}])
        self.assertEqual(output.read_text(), "['poison', 'poison']")


if __name__ == "__main__":
    unittest.main()
