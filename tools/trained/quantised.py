"""Lets the small model of docs/trained.md write with its cache in bf16, e4m3, int8 and int4, and counts what that changes. A row is a format:
  nats          loss for a byte of text that it has not seen, each byte behind a cache of that format; perplexity is e to that
  same_next     share of the bytes that it wrote with a cache in bf16 which it would write next in this format, too
  same_alone    share that is the same where it writes alone, from the first byte on
  per_second    bytes that it writes in a second, of all texts, by launches from Python
    PYTHONPATH=python python3 -m tools.trained.quantised --csv docs/results/CARD_quantised.csv --commit HASH [--seconds 32]
Needs PyTorch and the package. On a GPU its kernels read the caches; elsewhere (--device cpu) PyTorch attends to what the caches stand for,
and `attention` says so. What is new goes into the cache in its format: with the scales of the first 1024 bytes, or in int4 with its own."""
from __future__ import annotations

import csv
import datetime
import math
import time
from pathlib import Path

import flash_ladder
import torch
from torch.nn import functional as F

from tools.trained.train import HEAD_DIM, HEADS, LAYERS, N, WIDTH, Model, arguments, rotated, trained

BEGINNING, NEW, TEXTS = 1024, 256, 8
FORMATS = {"bf16": None, "e4m3": "float8_e4m3fn", "int8": "int8", "int4": "int4"}


def numbers(array: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """What a cache [batch, n, heads, d] stands for."""
    if scale is None:
        return array.float()
    if array.dtype == torch.uint8:  # of four bits with their sign, the even column lower
        return torch.stack(((array << 4).view(torch.int8) >> 4, array.view(torch.int8) >> 4), -1).flatten(-2) * scale[..., None]
    return array.float() * scale[:, None, :, None]


class Cache:
    """Of a layer: room for all keys and values, and how many are there."""

    def __init__(self, k: torch.Tensor, v: torch.Tensor, dtype: str | None):
        self.dtype, self.length = dtype, k.shape[1]
        made = (k, v) if dtype is None else flash_ladder.quantize_kv(k, v, dtype)
        room = lambda of: torch.cat([of, of.new_zeros(of.shape[0], NEW, *of.shape[2:])], 1)
        self.k, self.v, *scales = made
        self.k, self.v = room(self.k), room(self.v)
        of_heads = lambda of: room(of).transpose(1, 2).contiguous().transpose(1, 2)  # side by side, as quantize_kv lays them
        self.scales = [of_heads(of) if dtype == "int4" else of for of in scales]

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """One query of each text, which sees its own key, too: [batch, 1, heads, d]."""
        named = dict(zip(("k_descale", "v_descale"), self.scales))
        if self.dtype is not None:
            k, v, *new = flash_ladder.quantize_kv(k, v, self.dtype, **({} if self.dtype == "int4" else named))
            named |= dict(zip(("k_new_descale", "v_new_descale"), new)) if self.dtype == "int4" else {}
        self.length += 1
        if q.is_cuda:
            return flash_ladder.flash_attn_with_kvcache(q, self.k, self.v, k, v, cache_seqlens=self.length - 1, **named)
        at = slice(self.length - 1, self.length)
        self.k[:, at], self.v[:, at] = k, v
        if self.dtype == "int4":
            for scale, of in zip(self.scales, new):
                scale[:, at] = of
        scales = self.scales or (None, None)
        of_int4 = lambda scale: scale[:, : self.length] if self.dtype == "int4" else scale
        K, V = (numbers(of[:, : self.length], of_int4(scale)).transpose(1, 2) for of, scale in zip((self.k, self.v), scales))
        return F.scaled_dot_product_attention(q.transpose(1, 2).float(), K, V).transpose(1, 2).to(q.dtype)


def heads_of(layer, x: torch.Tensor, first: int) -> tuple[torch.Tensor, ...]:
    """q, k and v in bf16, [batch, n, heads, d]."""
    q, k, v = (part.view(*x.shape[:2], HEADS, HEAD_DIM) for part in layer.qkv(layer.before(x)).chunk(3, -1))
    q, k = (rotated(each.transpose(1, 2), first).transpose(1, 2) for each in (q, k))
    return tuple(each.to(torch.bfloat16).contiguous() for each in (q, k, v))


def through(layer, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
    x = x + layer.out(attended.reshape(*x.shape[:2], WIDTH).to(layer.out.weight.dtype))
    return x + layer.down(F.gelu(layer.up(layer.between(x))))


class Writer:
    """The model behind the beginnings of some texts, with a cache of one format for each layer."""

    def __init__(self, model: Model, beginnings: torch.Tensor, dtype: str | None):
        self.model, self.at, self.caches = model, beginnings.shape[1], []
        x = model.bytes(beginnings)
        for layer in model.layers:
            q, k, v = heads_of(layer, x, 0)
            self.caches.append(Cache(k, v, dtype))
            attended = F.scaled_dot_product_attention(*(each.transpose(1, 2) for each in (q, k, v)), is_causal=True).transpose(1, 2)
            x = through(layer, x, attended)
        self.next = self.logits(x[:, -1:])

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        return self.model.head(self.model.last(x))[:, 0].float()

    def read(self, tokens: torch.Tensor) -> None:
        """One more byte of each text, [batch]."""
        x = self.model.bytes(tokens[:, None])
        for layer, cache in zip(self.model.layers, self.caches):
            x = through(layer, x, cache.attend(*heads_of(layer, x, self.at)))
        self.at += 1
        self.next = self.logits(x)


def behind(writer: Writer, given: torch.Tensor | None = None) -> tuple[torch.Tensor, float]:
    """The logits before each of NEW bytes, [batch, NEW, 256], which are the given ones or those that it writes itself; and the seconds."""
    seen, began = [], time.perf_counter()
    for i in range(NEW):
        seen.append(writer.next)
        writer.read(writer.next.argmax(-1) if given is None else given[:, i])
    if given is None or given.is_cuda:
        seen[-1].sum().item()  # wait
    return torch.stack(seen, 1), time.perf_counter() - began


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--length", type=int, default=N, help="of a text in training")
    options = parser.parse_args()
    model, held_back, log = trained(options, options.device, options.length)
    print("\n".join(log[-2:]))
    step = (len(held_back) - BEGINNING - NEW) // (TEXTS - 1)
    texts = torch.stack([held_back[i * step : i * step + BEGINNING + NEW] for i in range(TEXTS)])
    beginnings, goes_on = texts[:, :BEGINNING], texts[:, BEGINNING:]
    if options.device == "cuda":
        model = model.bfloat16()
    rows, by_bf16 = [], torch.empty(0)
    with torch.no_grad():
        for name, dtype in FORMATS.items():
            logits, _ = behind(Writer(model, beginnings, dtype), goes_on)
            nats = F.cross_entropy(logits.flatten(0, 1), goes_on.flatten()).item()
            if options.device == "cuda":
                behind(Writer(model, beginnings, dtype))  # the first calls look at what they are given
            logits, seconds = behind(Writer(model, beginnings, dtype))
            alone = logits.argmax(-1)
            by_bf16 = alone if dtype is None else by_bf16
            following, _ = behind(Writer(model, beginnings, dtype), by_bf16)
            share = lambda same: f"{same.float().mean().item():.4f}"
            rows.append({"device": torch.cuda.get_device_name() if options.device == "cuda" else "CPU", "format": name,
                         "attention": "flash_ladder" if options.device == "cuda" else "PyTorch, dequantised", "texts": TEXTS,
                         "beginning": BEGINNING, "new": NEW, "nats": f"{nats:.4f}", "perplexity": f"{math.exp(nats):.4f}",
                         "same_next": share(following.argmax(-1) == by_bf16), "same_alone": share(alone == by_bf16),
                         "per_second": f"{TEXTS * NEW / seconds:.0f}", "layers": LAYERS, "trained": log[-1],
                         "commit": options.commit, "date": datetime.date.today().isoformat()})  # fmt: skip
            print(rows[-1])
    with open(options.csv, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
