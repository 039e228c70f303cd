"""What the PyTorch peers share: the protocol (README.md here), inputs, timing by CUDA events, and a check in float64.

A peer is a script that calls serve() with a function from a request to a contestant.
"""
from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable
from typing import Any

try:
    import torch
except ImportError as error:  # said in the answer to "prepare", so that the bench can list the peer as absent
    torch = None
    IMPORT_ERROR = str(error)

# Standard deviation of Q and K for each input set that needs nothing but a random generator.
SPREAD = {"normal": 1.0, "large_logits": 8.0, "peaky": 16.0}


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
    """What serve() needs: launch(), answer() for "prepare", and what a timed group begins and ends with."""

    def launch(self, launches: int) -> None:
        raise NotImplementedError

    def answer(self) -> dict[str, Any]:
        raise NotImplementedError

    def before(self) -> None:
        """Before each timed group: poison the output."""

    def after(self) -> None:
        """After each timed group: verify the output, or refuse."""


class AttentionContestant(Contestant):
    """Attention on inputs of its own, held to float64. Whoever derives from it says what launch() does.

    layout: "bhnd", contiguous [batch, heads, n, d] as the ladder's stages read it; or "bnhd", [batch, n, heads, d].
    """

    def __init__(self, request: dict[str, Any], name: str, layout: str) -> None:
        require_gpu()
        if request["dtype"] != "fp16":
            raise Refusal(f"no inputs of type {request['dtype']} here")
        if request.get("inputs", "normal") not in SPREAD:
            raise Refusal(f"no {request['inputs']} inputs here, only {', '.join(SPREAD)}")
        self.name = name
        self.version = version()
        self.causal = bool(request["causal"])
        self.Q, self.K, self.V = self._inputs(request, layout)
        self.expected = self._expected()
        self.launch(1)  # computes self.output, [batch, heads, n, d], on the current stream
        self.max_err = self._max_err()

    def before(self) -> None:
        self.output.fill_(float("nan"))

    def after(self) -> None:
        error = self._max_err()
        if not error <= 2 * self.max_err:  # the bench has held max_err to its bound
            raise Refusal(f"its error is {error:.1e} after it was timed, and was {self.max_err:.1e} before")

    @staticmethod
    def _inputs(request: dict[str, Any], layout: str) -> list[Any]:
        batch, heads, n, d = (int(request[size]) for size in ("batch", "heads", "n", "d"))
        generator = torch.Generator(device="cuda")
        generator.manual_seed(int(request["seed"]))
        spread = SPREAD[request.get("inputs", "normal")]
        tensors = []
        for scale in (spread, spread, 1.0):
            shape = (batch, heads, n, d) if layout == "bhnd" else (batch, n, heads, d)
            tensor = torch.randn(shape, generator=generator, device="cuda", dtype=torch.float16)
            if scale != 1.0:
                tensor *= scale
            tensors.append(tensor if layout == "bhnd" else tensor.transpose(1, 2))
        return tensors

    def _expected(self) -> list[tuple[int, int, Any, Any]]:
        """(batch, head, rows, those rows of the output in float64) of sampled heads."""
        batch, heads, n, d = self.Q.shape
        rows = torch.linspace(0, n - 1, min(n, 32), device="cuda").long()
        samples = []
        for index in sorted({0, batch * heads // 2, batch * heads - 1}):
            b, h = divmod(index, heads)
            scores = self.Q[b, h, rows].double() @ self.K[b, h].double().T / math.sqrt(d)
            if self.causal:
                keys = torch.arange(n, device="cuda")
                scores = scores.masked_fill(keys[None, :] > rows[:, None], float("-inf"))
            samples.append((b, h, rows, torch.softmax(scores, dim=-1) @ self.V[b, h].double()))
        return samples

    def _max_err(self) -> float:
        """Largest error of the sampled rows."""
        errors = [(self.output[b, h, rows].double() - expected).abs().max().item() for b, h, rows, expected in self.expected]
        if not all(map(math.isfinite, errors)):
            raise Refusal("its output is not a number")
        return max(errors)

    def answer(self) -> dict[str, Any]:
        return {"name": self.name, "version": self.version, "max_err": self.max_err}


class SdpaContestant(AttentionContestant):
    """torch.nn.functional.scaled_dot_product_attention with one back end pinned."""

    def __init__(self, request: dict[str, Any], name: str, backend: str, layout: str) -> None:
        self.backend = backend
        super().__init__(request, name, layout)

    def before(self) -> None:
        # A launch allocates its output while the one before is alive: they take turns in two blocks of memory.
        for output in (self.output, torch.empty_like(self.output)):
            output.fill_(float("nan"))

    def launch(self, launches: int) -> None:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, self.backend)):
            for _ in range(launches):
                self.output = torch.nn.functional.scaled_dot_product_attention(
                    self.Q, self.K, self.V, is_causal=self.causal)


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
    contestant.before()
    start.record()
    contestant.launch(launches)
    stop.record()
    stop.synchronize()
    contestant.after()
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
            if request["op"] == "quit":
                return
            if request["op"] == "prepare":
                contestant = None  # before the next one needs the memory
                if torch is not None and torch.cuda.is_available():
                    torch.cuda.empty_cache()
                contestant = make_contestant(request)
                reply(ok=True, **contestant.answer())
            elif request["op"] == "run":
                if contestant is None:
                    raise Refusal("nothing is prepared")
                reply(ok=True, ms=time_ms(contestant, int(request["launches"])))
            else:
                raise Refusal(f"no operation '{request['op']}'")
        except Refusal as refusal:
            reply(ok=False, reason=str(refusal))
        except Exception as error:  # PyTorch's errors have many types; the bench goes on without this peer
            print(error, file=sys.stderr)
            reply(ok=False, reason=first_line(error))
