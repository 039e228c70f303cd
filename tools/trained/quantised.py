"""Lets the small model of docs/trained.md write with its cache in bf16, e4m3, int8 and int4, and counts what that changes. A row is a format,
with a scale for each head, in int4 for each token, or for what its name says, e4m3-channel, say:
  nats          loss for a byte of text that it has not seen, each byte behind a cache of that format; perplexity is e to that
  same_next     share of the bytes that it wrote with a cache in bf16 which it would write next in this format, too
  same_alone    share that is the same where it writes alone, from the first byte on
  per_second    bytes that it writes in a second, of all texts, by launches from Python
    PYTHONPATH=python python3 -m tools.trained.quantised --csv docs/results/CARD_quantised.csv --commit HASH [--seconds 32] [--model FILE]
A row is written when it is there, in the place of one of that device and format. Where there is little time, --formats int4 makes that one
alone; rows of several runs are of one model if --model names a file, which the first run writes and the others read.
Needs PyTorch and the package. On a GPU its kernels read the caches; elsewhere (--device cpu) PyTorch attends to what the caches stand for,
and `attention` says so. What is new goes into the cache in its format: with the scales of the first 1024 bytes, or per token with its own."""
from __future__ import annotations

import argparse
import csv
import datetime
import math
import time
from pathlib import Path

import flash_ladder
import torch
from torch.nn import functional as F

from tools.trained.train import HEAD_DIM, HEADS, LAYERS, N, WIDTH, Model, arguments, rotated, trained

Format = tuple[str, str] | None  # its type, and what has a scale
FORMATS: dict[str, Format] = {"bf16": None, "e4m3": ("float8_e4m3fn", "head"), "int8": ("int8", "head"), "int4": ("int4", "token")}
FORMATS |= {f"{name}-{per}": (FORMATS[name][0], per) for name in ("e4m3", "int8") for per in ("token", "channel")}


def numbers(array: torch.Tensor, scale: torch.Tensor | None, per: str) -> torch.Tensor:
    """What a cache [batch, n, heads, d] stands for."""
    if scale is None:
        return array.float()
    if array.dtype == torch.uint8:  # of four bits with their sign, the even column lower
        array = torch.stack(((array << 4).view(torch.int8) >> 4, array.view(torch.int8) >> 4), -1).flatten(-2)
    return array.float() * {"head": lambda: scale[:, None, :, None], "token": lambda: scale[..., None], "channel": lambda: scale[:, None]}[per]()


class Cache:
    """Of a layer: room for all keys and values, `new` more than these, and how many are there."""

    def __init__(self, k: torch.Tensor, v: torch.Tensor, form: Format, new: int):
        self.length = k.shape[1]
        self.dtype, self.per = form or (None, "head")
        made = (k, v) if form is None else flash_ladder.quantize_kv(k, v, self.dtype, per=self.per)
        room = lambda of: torch.cat([of, of.new_zeros(of.shape[0], new, *of.shape[2:])], 1)
        self.k, self.v, *scales = made
        by_heads = lambda of: room(of).transpose(1, 2).contiguous().transpose(1, 2)  # as quantize_kv lays four bits, and scales per token
        self.k, self.v = (by_heads(of) if self.dtype == "int4" else room(of) for of in (self.k, self.v))
        self.scales = [by_heads(of) if self.per == "token" else of for of in scales]

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """One query of each text, which sees its own key, too: [batch, 1, heads, d]."""
        named = dict(zip(("k_descale", "v_descale"), self.scales))
        if self.dtype is not None:
            k, v, *new = flash_ladder.quantize_kv(k, v, self.dtype, per=self.per, **({} if self.per == "token" else named))
            named |= dict(zip(("k_new_descale", "v_new_descale"), new)) if self.per == "token" else {}
        self.length += 1
        if q.is_cuda:
            return flash_ladder.flash_attn_with_kvcache(q, self.k, self.v, k, v, cache_seqlens=self.length - 1, **named)
        at = slice(self.length - 1, self.length)
        self.k[:, at], self.v[:, at] = k, v
        if self.per == "token":
            for scale, of in zip(self.scales, new):
                scale[:, at] = of
        scales = self.scales or (None, None)
        used = lambda scale: scale[:, : self.length] if self.per == "token" else scale
        K, V = (numbers(of[:, : self.length], used(scale), self.per).transpose(1, 2) for of, scale in zip((self.k, self.v), scales))
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
    """The model behind the beginnings of some texts, with a cache of one format for each layer and room for `new` bytes more."""

    def __init__(self, model: Model, beginnings: torch.Tensor, form: Format, new: int):
        self.model, self.at, self.caches = model, beginnings.shape[1], []
        x = model.bytes(beginnings)
        for layer in model.layers:
            q, k, v = heads_of(layer, x, 0)
            self.caches.append(Cache(k, v, form, new))
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


def behind(writer: Writer, new: int, given: torch.Tensor | None = None) -> tuple[torch.Tensor, float]:
    """The logits before each of `new` bytes, [batch, new, 256], which are the given ones or those that it writes itself; and the seconds."""
    seen, began = [], time.perf_counter()
    for i in range(new):
        seen.append(writer.next)
        writer.read(writer.next.argmax(-1) if given is None else given[:, i])
    if given is None or given.is_cuda:
        seen[-1].sum().item()  # wait
    return torch.stack(seen, 1), time.perf_counter() - began


def model_of(options: argparse.Namespace) -> tuple[Model, torch.Tensor, str]:
    """The one that options.model keeps, or a new one; the text that was held back; how long it was trained."""
    if options.model and options.model.exists():
        kept = torch.load(options.model, map_location=options.device)
        model = Model().to(options.device)
        model.load_state_dict(kept["model"])
        return model, kept["held_back"], kept["trained"]
    model, held_back, log = trained(options, options.device, options.length)
    print("\n".join(log[-2:]), flush=True)
    if options.model:
        torch.save({"model": model.state_dict(), "held_back": held_back, "trained": log[-1]}, options.model)
    return model, held_back, log[-1]


def with_row(path: Path, row: dict[str, str]) -> None:
    """The file with that row, in the place of one of the same device and format."""
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines())) if path.exists() else []
    place = [(each["device"], each["format"]) for each in rows] + [(row["device"], row["format"])]
    at = place.index(place[-1])
    rows[at : at + 1] = [row]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--csv", type=Path, required=True)
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--formats", default=",".join(FORMATS), help="some of them, as in int4 or bf16,int4; all are the default")
    parser.add_argument("--model", type=Path, help="a file that keeps the trained model, or has kept it")
    parser.add_argument("--length", type=int, default=N, help="of a text in training")
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--beginning", type=int, default=1024, help="bytes of each text that stand in the cache at first")
    parser.add_argument("--new", type=int, default=256, help="bytes behind these")
    options = parser.parse_args()
    asked = options.formats.split(",")
    if unknown := [name for name in asked if name not in FORMATS]:
        parser.error(f"no format is {', '.join(unknown)}; there are {', '.join(FORMATS)}")
    on_gpu, new = options.device == "cuda", options.new
    model, held_back, steps = model_of(options)
    apart = (len(held_back) - options.beginning - new) // max(options.texts - 1, 1)
    texts = torch.stack([held_back[i * apart : i * apart + options.beginning + new] for i in range(options.texts)])
    beginnings, goes_on = texts[:, : options.beginning], texts[:, options.beginning :]
    if on_gpu:
        model = model.bfloat16()
    with torch.no_grad():
        write = lambda form, given=None, most=new: behind(Writer(model, beginnings, form, new), most, given)
        by_bf16 = write(None)[0].argmax(-1)  # also where its row is not asked for
        for name in asked:
            form = FORMATS[name]
            nats = F.cross_entropy(write(form, goes_on)[0].flatten(0, 1), goes_on.flatten()).item()
            if on_gpu:
                write(form, most=min(new, 8))  # the first calls look at what they are given
            logits, seconds = write(form)
            following, _ = write(form, by_bf16)
            share = lambda logits: f"{(logits.argmax(-1) == by_bf16).float().mean().item():.4f}"
            row = {"device": torch.cuda.get_device_name() if on_gpu else "CPU", "format": name,
                   "attention": "flash_ladder" if on_gpu else "PyTorch, dequantised", "texts": options.texts,
                   "beginning": options.beginning, "new": new, "nats": f"{nats:.4f}", "perplexity": f"{math.exp(nats):.4f}",
                   "same_next": share(following), "same_alone": share(logits), "per_second": f"{options.texts * new / seconds:.0f}",
                   "layers": LAYERS, "trained": steps, "commit": options.commit, "date": datetime.date.today().isoformat()}  # fmt: skip
            with_row(options.csv, row)
            print(row, flush=True)


if __name__ == "__main__":
    main()
