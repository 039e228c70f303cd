"""Trains a small language model on this repository's own text, and keeps what its heads ask and offer: Q and K at n = 2048.

The model reads bytes: four layers, four heads of 128, rotary positions, causal. On an H100 or H200 two minutes are enough. Needs PyTorch
and a GPU. Writes two files:
  trained.npz   Q and K of every head, after the rotation, f16, of one text that the model has not seen: for `picture` and `pack`
  trained.txt   the loss over the steps
"""
from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LAYERS, HEADS, HEAD_DIM, N = 4, 4, 128, 2048
WIDTH = HEADS * HEAD_DIM
TEXT = ("*.md", "*.cuh", "*.cu", "*.hpp", "*.cpp", "*.py")


def text_of(root: Path) -> bytes:
    """All prose and code that git knows, one file after another, in an order that mixes them."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z", *TEXT], capture_output=True, check=False).stdout
    files = [root / name for name in listed.decode().split("\0") if (root / name).is_file() and name]
    files = files or [file for kind in TEXT for file in root.rglob(kind) if not file.relative_to(root).parts[0].startswith((".", "build"))]
    return b"\n".join(file.read_bytes() for file in sorted(files, key=lambda file: (hash_of(file.name), str(file))))


def hash_of(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value * 31 + byte) % 65521
    return value


def rotated(x: torch.Tensor, first: int = 0) -> torch.Tensor:
    """Rotary positions, from `first` on: pairs of columns turn with the position, each pair at a speed of its own."""
    half = HEAD_DIM // 2
    speed = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = (first + torch.arange(x.shape[-2], device=x.device))[:, None] * speed
    low, high = x[..., :half].float(), x[..., half:].float()
    return torch.cat([low * angle.cos() - high * angle.sin(), low * angle.sin() + high * angle.cos()], -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.kept: list[torch.Tensor] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, n, _ = x.shape
        q, k, v = (part.view(batch, n, HEADS, HEAD_DIM).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        q, k = rotated(q), rotated(k)
        if self.kept is not None:
            self.kept[:] = [q, k]
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, n, WIDTH))
        return x + self.down(F.gelu(self.up(self.between(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.bytes(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.last(x))


def arguments(about: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--batch", type=int, default=32)
    return parser


def trained(options: argparse.Namespace, device: str = "cuda", length: int = N) -> tuple[Model, torch.Tensor, list[str]]:
    """A model of the text under options.root, after so many seconds; what was held back of the text; the loss over the steps."""
    torch.manual_seed(1)
    text = torch.tensor(np.frombuffer(text_of(options.root), np.uint8).astype(np.int64)).to(device)
    held_back, text = text[-4 * N:], text[:-4 * N]
    model = Model().to(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    started, step, log = time.time(), 0, []
    while (share := (time.time() - started) / options.seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = 1e-3 * min(1, step / 100) * (1 - share)
        begin = torch.randint(len(text) - length - 1, (options.batch,), device=device)
        tokens = text[begin[:, None] + torch.arange(length + 1, device=device)]
        with torch.autocast(device, torch.bfloat16):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if step % 100 == 0:
            log.append(f"{step} {loss.item():.3f}")
        step += 1
    log.append(f"{step} steps, {len(text)} bytes of text")
    return model, held_back, log


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--out", type=Path, default=Path("."))
    options = parser.parse_args()
    model, held_back, log = trained(options)
    for layer in model.layers:
        layer.kept = []
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(held_back[None, :N]).flatten(0, 1), held_back[1:N + 1])
    log[-1] += f"; the text held back: {loss.item():.3f} nats a byte"
    (options.out / "trained.txt").write_text("\n".join(log) + "\n")
    kept = [[x[0].float().half().cpu().numpy() for x in layer.kept or []] for layer in model.layers]
    np.savez_compressed(options.out / "trained.npz", Q=np.stack([q for q, _ in kept]), K=np.stack([k for _, k in kept]))
    print("\n".join(log[-3:]))


if __name__ == "__main__":
    main()
