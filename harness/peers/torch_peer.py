"""What the PyTorch peers share: the protocol (README.md here), the inputs, timing by CUDA events.

A peer is a script that calls serve() with a function from a request to a contestant.
"""
from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

PROTOCOL = 3

try:
    import torch
except ImportError as error:  # said in the answer to "prepare", so that the bench can list the peer as absent
    torch = None
    IMPORT_ERROR = str(error)

class Refusal(Exception):
    """Why this peer cannot take part: the answer's "reason"."""


def require_gpu() -> None:
    if torch is None:
        raise Refusal(f"no PyTorch: {IMPORT_ERROR}")
    if not torch.cuda.is_available():
        raise Refusal("PyTorch finds no GPU")


def version() -> str:
    return f"pytorch {torch.__version__}"


class Contestant:
    """What serve() needs. A ceiling has nothing to poison and no output."""

    def launch(self, launches: int) -> None:
        raise NotImplementedError

    def answer(self) -> dict[str, Any]:
        raise NotImplementedError

    def poison(self) -> None:
        raise Refusal("it has no output")

    def write_output(self, rows: list[int]) -> None:
        raise Refusal("it has no output")


class AttentionContestant(Contestant):
    """Attention on the inputs of the request. Whoever derives from it says what launch() does: it computes self.output,
    [batch, heads, n, d], on the current stream.

    layout: "bhnd", contiguous [batch, heads, n, d] as the ladder's stages read it; or "bnhd", [batch, n, heads, d].
    FEATURES: what it takes beyond a dense forward pass in fp16, as the request names it.
    """

    FEATURES = {"causal"}
    DTYPES = {"fp16"}
    OUTPUT = "O"  # whose rows are asked for

    def __init__(self, request: dict[str, Any], name: str, layout: str) -> None:
        require_gpu()
        for dtype in request.get("dtypes", [request["dtype"]]):
            if dtype not in self.DTYPES or dtype != request["dtype"]:
                raise Refusal(f"no inputs of type {dtype} here")
        if missing := set(request.get("features", [])) - self.FEATURES:
            raise Refusal(f"no {', '.join(sorted(missing))} here")
        self.name = name
        self.version = version()
        self.causal = bool(request["causal"])
        self.scale = float(request["softmax_scale"])
        if not math.isclose(self.scale, int(request["d"]) ** -0.5, rel_tol=1e-6):
            raise Refusal(f"no softmax_scale but 1 / sqrt(d) here, not {self.scale}")
        self.output_file = request["tensors"][self.OUTPUT]
        self.layout = layout
        self.take(request)
        self.launch(1)

    def take(self, request: dict[str, Any]) -> None:
        """Q, K and V."""
        batch, heads, n, d = (int(request[size]) for size in ("batch", "heads", "n", "d"))
        keys = (batch, int(request.get("kv_heads", heads)), int(request.get("nk", n)), d)
        shapes = {"Q": (batch, heads, n, d), "K": keys, "V": keys}
        dtype = torch.bfloat16 if request["dtype"] == "bf16" else torch.float16
        self.Q, self.K, self.V = (self._tensor(request["tensors"][tensor], shapes[tensor], self.layout, dtype) for tensor in "QKV")

    @staticmethod
    def _tensor(path: str, shape: tuple[int, ...], layout: str, dtype: Any) -> Any:
        tensor = torch.from_file(path, size=math.prod(shape), dtype=dtype).reshape(shape).cuda()
        return tensor if layout == "bhnd" else tensor.transpose(1, 2).contiguous().transpose(1, 2)

    def poison(self) -> None:
        self.output.fill_(float("nan"))

    def write_output(self, rows: list[int]) -> None:
        """The rows, counted through batch, heads and queries, one behind the other."""
        flat = self.output.reshape(-1, self.output.shape[-1])
        chosen = flat[torch.tensor(rows, device="cuda")].cpu().contiguous()
        with open(self.output_file, "wb") as file:
            if chosen.dtype != torch.float16:
                chosen = chosen.view(torch.int16)  # NumPy has no bf16
            file.write(chosen.numpy().tobytes())

    def answer(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version}


class SdpaContestant(AttentionContestant):
    """torch.nn.functional.scaled_dot_product_attention with one back end pinned. Its mask is aligned with the first keys, where
    there are more of them than queries."""

    FEATURES = {"causal", "grouped", "cross"}
    DTYPES = {"fp16", "bf16"}

    def __init__(self, request: dict[str, Any], name: str, backend: str, layout: str) -> None:
        self.backend = backend
        if {"causal", "cross"} <= set(request.get("features", [])):
            raise Refusal("no causal mask over more or fewer keys than queries here")
        super().__init__(request, name, layout)

    def poison(self) -> None:
        # A launch allocates its output while the one before is alive: they take turns in two blocks of memory.
        for output in (self.output, torch.empty_like(self.output)):
            output.fill_(float("nan"))

    def launch(self, launches: int) -> None:
        with torch.no_grad():
            for _ in range(launches):
                self.output = self.attention()

    def attention(self) -> Any:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(getattr(SDPBackend, self.backend)):
            return torch.nn.functional.scaled_dot_product_attention(
                self.Q, self.K, self.V, is_causal=self.causal,
                **({"enable_gqa": True} if self.Q.shape[1] != self.K.shape[1] else {}))


class SdpaGradients(SdpaContestant):
    """Its gradients: dQ, dK and dV, of the forward pass that comes before and is not timed. Rows of dQ are judged."""

    FEATURES = SdpaContestant.FEATURES | {"backward"}
    OUTPUT = "dQ"

    def __init__(self, request: dict[str, Any], name: str, backend: str, layout: str) -> None:
        require_gpu()
        if "backward" not in request.get("features", []):
            raise Refusal("gradients alone here")
        self.dO_file = request["tensors"]["dO"]
        self.dO = None
        super().__init__(request, name, backend, layout)

    def launch(self, launches: int) -> None:
        if self.dO is None:
            self.dO = self._tensor(self.dO_file, tuple(self.Q.shape), self.layout, self.Q.dtype)
            for tensor in (self.Q, self.K, self.V):
                tensor.requires_grad_()
            self.O = self.attention()  # with LSE, which autograd keeps
        for _ in range(launches):
            self.gradients = torch.autograd.grad(self.O, (self.Q, self.K, self.V), self.dO, retain_graph=True)
        self.output = self.gradients[0].detach()

    def poison(self) -> None:
        # A launch allocates its gradients while those before are alive: they take turns in two places.
        for gradient in (*self.gradients, *(torch.empty_like(each) for each in self.gradients)):
            gradient.fill_(float("nan"))


class GemmContestant(Contestant):
    """An fp16 matrix product through cuBLAS: how fast the card is today, whatever the attention's shape."""

    SIZE = 8192

    def __init__(self, request: dict[str, Any], name: str) -> None:
        require_gpu()
        self.name = name
        generator = torch.Generator(device="cuda")
        generator.manual_seed(int(request["seed"]))
        shape = (self.SIZE, self.SIZE)
        self.A, self.B = (torch.randn(shape, generator=generator, device="cuda", dtype=torch.float16) for _ in range(2))
        self.C = torch.empty(shape, device="cuda", dtype=torch.float16)

    def launch(self, launches: int) -> None:
        with torch.no_grad():
            for _ in range(launches):
                torch.matmul(self.A, self.B, out=self.C)

    def answer(self) -> dict[str, Any]:
        return {"name": self.name, "version": version(), "kind": "ceiling", "flops": 2.0 * self.SIZE**3}


def time_ms(contestant: Contestant, launches: int) -> float:
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    contestant.launch(launches)
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop)


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def serve(make_contestant: Callable[[dict[str, Any]], Contestant]) -> None:
    """Answers requests until "quit" or the end of the input."""
    # Libraries may print: what they say must not land between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    contestant = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            operation = request["op"]
            if operation == "quit":
                return
            if operation == "prepare":
                contestant = None  # before the next one needs the memory
                if torch is not None and torch.cuda.is_available():
                    torch.cuda.empty_cache()
                contestant = make_contestant(request)
                reply(ok=True, protocol=PROTOCOL, **contestant.answer())
            elif operation not in ("poison", "run", "output"):
                raise Refusal(f"no operation '{operation}'")
            elif contestant is None:
                raise Refusal("nothing is prepared")
            elif operation == "run":
                reply(ok=True, ms=time_ms(contestant, int(request["launches"])))
            else:
                if operation == "poison":
                    contestant.poison()
                else:
                    contestant.write_output(request["rows"])
                torch.cuda.synchronize()  # nothing of it is left to do when a group is timed
                reply(ok=True)
        except Refusal as refusal:
            reply(ok=False, reason=str(refusal))
        except Exception as error:  # PyTorch's errors have many types; the bench goes on without this peer
            print(error, file=sys.stderr)
            reply(ok=False, reason=first_line(error))
