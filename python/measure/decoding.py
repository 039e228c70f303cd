"""One query beside many keys, in a CUDA graph of launches over copies that the L2 cache does not hold: rungs, FlashAttention-3 and cuDNN in
turns. How long a launch takes, and how many bytes of K and V it reads in a second. decoding/README.md shows the rows.
    python3 python/measure/decoding.py --csv docs/results/CARD_decoding.csv --commit HASH [--rungs d02_split d05_dependent] [--rounds 20]
With --cache: caches in one piece and in pages, of sequences that are full or of several lengths. With --bytes: rungs for bf16 on caches in
one piece, and beside them d13_bytes on the same keys and values in e4m3 and int8, d24_channels and d25_tokens with other scales, and
d17_nibbles and d21 to d23 in int4; d22 and d23 also where all rows of a head stand side by side ("heads"), and not all heads of a token.
With --only: of the problems those whose words have all of these, as `--only b=8 nk=65536`."""

from __future__ import annotations

import argparse
import csv
import datetime
import math
import random
import statistics
import sys

import flash_ladder
import peers
import torch
from flash_ladder._attention import Cache
from flash_ladder._torch import attend_cache
from peers import Problem, fa3_peer

LAUNCHES, FLUSH = 20, 300e6  # of a graph; bytes of all copies, at least: six times an H200's L2
LONG = 10e9  # bytes: of so many the last rung is timed alone beside the libraries


def problems() -> list[Problem]:
    of = Problem(heads=32, kv_heads=8, n_q=1, causal=True)
    found = [of._replace(batch=batch, n_k=n_k) for batch in (1, 8, 64) for n_k in (1024, 8192, 65536)]
    found += [of._replace(batch=batch, n_k=n_k, kv_heads=1) for batch, n_k in ((1, 8192), (1, 65536), (8, 8192))]
    found += [of._replace(batch=8, n_k=65536, kv_heads=32), *(of._replace(batch=8, n_k=8192, n_q=n_q) for n_q in (4, 8, 16))]
    return found


def graph_of(calls: list, unlike, most: float) -> tuple[torch.cuda.CUDAGraph, list]:
    """Of a call over each copy in turn, and these, who keep its memory. `unlike`: how far the first one's result is from the right one."""
    result = calls[0]()
    torch.cuda.synchronize()
    if (off := unlike(result)) > most:
        raise peers.Refusal(f"wrong by {off:.1e}")
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        calls[0]()
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(LAUNCHES):
            calls[i % len(calls)]()
    return graph, calls


def copies_of(bytes_read: int) -> range:
    return range(min(LAUNCHES, math.ceil(FLUSH / bytes_read) + 1))


def cases(rungs: list[str]):
    """The words of a problem, the bytes of K and V that each contender reads, what has to be kept, and of each contender how its graph is made."""
    known = {rung: lambda p, t, rung=rung: lambda: flash_ladder.attention(*t.qkv, causal=p.causal, rung=rung) for rung in rungs}
    known |= {name: make for name, (make, _) in peers.contenders().items() if name in ("fa3", "cudnn")}
    for p in problems():
        bytes_read = 2 * 2 * p.batch * p.kv_heads * p.n_k * p.d
        copies = [peers.Tensors(p) for _ in copies_of(bytes_read)]
        wanted, of = peers.expected(p, copies[0])
        unlike = lambda result: max(((a - b).norm() / b.norm()).item() for a, b in zip(of([result]), wanted))
        graphs = {name: lambda make=make: graph_of([make(p, each) for each in copies], unlike, peers.MOST_UNLIKE[p.dtype])
                  for name, make in known.items() if bytes_read < LONG or name not in rungs[:-1]}  # fmt: skip
        if "d16_functions" in rungs and p.n_q == 1 and (p.batch, p.kv_heads, p.n_k) in ((1, 8, 1024), (8, 8, 8192)):
            graphs = {f"d16_functions {name}": lambda options=options: function_graph(p, copies, options) for name, options in functions_of(p.heads).items()} | graphs
        yield p.words, lambda name: bytes_read, graphs


def functions_of(heads: int) -> dict:
    of_heads = torch.linspace(0.01, 0.5, heads, device="cuda")
    return {"softcap": {"softcap": 50.0}, "slopes": {"alibi_slopes": of_heads}, "sinks": {"sink": of_heads}}


def plain(q, k, v, options: dict):
    """One query of each head under a function of its scores, in f32."""
    q, k, v = (each.float() for each in (q, k, v))
    k, v = (each.repeat_interleave(q.shape[2] // k.shape[2], 2) for each in (k, v))
    n_k, slopes, sinks = k.shape[1], options.get("alibi_slopes"), options.get("sink")
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[3] ** -0.5
    if "softcap" in options:
        scores = options["softcap"] * torch.tanh(scores / options["softcap"])
    if slopes is not None:
        scores -= slopes[:, None, None] * torch.arange(n_k - 1, -1, -1, device=scores.device)
    if sinks is not None:
        scores = torch.cat([scores, sinks[:, None, None].expand(*scores.shape[:3], 1)], -1)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1)[..., :n_k], v)


def function_graph(p: Problem, copies: list, options: dict):
    wanted = plain(*copies[0].qkv, options)
    calls = [lambda each=each: flash_ladder.attention(*each.qkv, causal=p.causal, rung="d16_functions", **options) for each in copies]
    return graph_of(calls, lambda result: ((result.float() - wanted).norm() / wanted.norm()).item(), peers.MOST_UNLIKE[p.dtype])


HEADS, KV_HEADS, D = 32, 8, 128
PAGES = (256, 64, 16, 1)
FULL = [[1024], [8192], [65536], [8192] * 8, [65536] * 8, [1024] * 64, [8192] * 64]
UNLIKE = [[4641, 45118, 1730, 1696], [65536] + [1024] * 15, [i * 512 + 100 for i in range(32)]]


def cached_cases(rungs: list[str]):
    fa3 = "fa3" in peers.contenders()
    for lengths in FULL + UNLIKE:
        batch, room = len(lengths), -(-max(lengths) // 256) * 256
        bytes_read = 2 * 2 * KV_HEADS * D * sum(lengths)
        draw = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        copies = [(draw(batch, 1, HEADS, D), draw(batch, room, KV_HEADS, D), draw(batch, room, KV_HEADS, D)) for _ in copies_of(bytes_read)]
        used = torch.tensor(lengths, device="cuda", dtype=torch.int32)
        q, K, V = copies[0]
        wanted = torch.cat([torch.nn.functional.scaled_dot_product_attention(
            q[i : i + 1].transpose(1, 2).float(), *(each[i : i + 1, :n].transpose(1, 2).float() for each in (K, V)), enable_gqa=True,
        ).transpose(1, 2) for i, n in enumerate(lengths)])  # fmt: skip
        unlike = lambda result: ((result.float() - wanted).norm() / wanted.norm()).item()

        def of_function(rung: str, options: dict):
            wanted = torch.cat([plain(q[i : i + 1], K[i : i + 1, :n], V[i : i + 1, :n], options) for i, n in enumerate(lengths)])
            functions = options.get("softcap", 0.0), options.get("alibi_slopes"), options.get("sink")
            call = lambda q, K, V: attend_cache(q, K, V, False, None, None, *functions, False, None, rung, Cache(used, None))
            return graph_of([lambda each=each: call(*each) for each in copies], lambda result: ((result.float() - wanted).norm() / wanted.norm()).item(),
                            peers.MOST_UNLIKE[torch.bfloat16])  # fmt: skip

        def in_pages(size: int):
            """The copies' caches in pages at random places, and the table."""
            pages = room // size * batch
            table = torch.randperm(pages, device="cuda").view(batch, -1)
            scattered = []
            for q, *caches in copies:
                made = [torch.empty(pages, size, KV_HEADS, D, device="cuda", dtype=torch.bfloat16) for _ in caches]
                for cache, new in zip(caches, made):
                    new[table.flatten()] = cache.view(pages, size, KV_HEADS, D)
                scattered.append((q, *made))
            return scattered, table.int()

        def of_rung(rung: str, size: int):
            there, table = (copies, None) if size == 0 else in_pages(size)
            call = lambda q, K, V: attend_cache(q, K, V, False, None, None, 0.0, None, None, False, None, rung, Cache(used, table))
            return graph_of([lambda each=each: call(*each) for each in there], unlike, peers.MOST_UNLIKE[torch.bfloat16])

        def of_fa3(size: int):
            there, table = (copies, None) if size == 0 else in_pages(size)
            given = list(fa3_peer.NOT_GIVEN)
            given[8], given[11] = used, table
            attention_chunk, _, *rest = fa3_peer.DEFAULTS
            rest[2] = 0
            tail = (D**-0.5, False, -1, -1, attention_chunk, 0.0, *rest)
            call = lambda q, K, V: torch.ops.flash_attn_3.fwd(q, K, V, *given, *tail)[0]
            return graph_of([lambda each=each: call(*each) for each in there], unlike, peers.MOST_UNLIKE[torch.bfloat16])

        graphs = {}
        for size in (*PAGES, 0) if lengths in FULL else (64, 0):
            words = f" pages={size}" if size else ""
            if fa3:
                graphs[f"fa3{words}"] = lambda size=size: of_fa3(size)
            for rung in rungs:
                graphs[rung + words] = lambda rung=rung, size=size: of_rung(rung, size)
                if size == 0 and lengths in UNLIKE and rung in ("d16_functions", "d19_listed"):
                    graphs |= {f"{rung} {name}": lambda rung=rung, options=options: of_function(rung, options) for name, options in functions_of(HEADS).items()}
        if lengths in FULL:
            graphs = {"d05_dependent": lambda: graph_of([lambda e=e: flash_ladder.attention(*(e[0], *(c[:, : lengths[0]] for c in e[1:])), rung="d05_dependent") for e in copies],
                                                        unlike, peers.MOST_UNLIKE[torch.bfloat16])} | graphs  # fmt: skip
        text = f"lens_k={','.join(map(str, lengths))}" if len(set(lengths)) > 1 else ""
        words = [f"b={batch}", f"h={HEADS}", f"kv={KV_HEADS}", "nq=1", f"nk={max(lengths)}", f"d={D}", "bf16", text]
        yield " ".join(filter(None, words)), lambda name: bytes_read, graphs


BYTES = {"e4m3": "float8_e4m3fn", "int8": "int8", "int4": "int4"}
READERS = {"d13_bytes": ("e4m3", "int8"), "d17_nibbles": ("int4",), "d21_columns": ("int4",), "d22_smallest": ("int4",), "d23_neighbours": ("int4",),
           "d24_channels": ("e4m3", "int8"), "d25_tokens": ("e4m3", "int8")}  # of which types
PER = {"d24_channels": "channel", "d25_tokens": "token"}  # what has a scale, where quantize_kv would take another one


def byte_cases(rungs: list[str]):
    """As the others, but the bytes are each contender's own."""
    halves = [rung for rung in rungs if rung not in READERS]
    for kv_heads, lengths in [(KV_HEADS, each) for each in FULL + [[1024] * 8] + UNLIKE] + [(4, [65536])]:
        batch, room = len(lengths), max(lengths)
        numbers = 2 * kv_heads * D * sum(lengths)
        draw = lambda *shape: torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        copies = [(draw(batch, 1, HEADS, D), draw(batch, room, kv_heads, D), draw(batch, room, kv_heads, D)) for _ in copies_of(numbers)]
        used = torch.tensor(lengths, device="cuda", dtype=torch.int32)

        def unlike_of(K, V):
            q = copies[0][0]
            wanted = torch.cat([torch.nn.functional.scaled_dot_product_attention(
                q[i : i + 1].transpose(1, 2).float(), *(each[i : i + 1, :n].transpose(1, 2).float() for each in (K, V)), enable_gqa=True,
            ).transpose(1, 2) for i, n in enumerate(lengths)])  # fmt: skip
            return lambda result: ((result.float() - wanted).norm() / wanted.norm()).item()

        def of_rung(rung: str, there: list, most: float = peers.MOST_UNLIKE[torch.bfloat16]):
            K, V = dequantised(*there[0][1:])
            call = lambda q, K, V, *scales: attend_cache(q, K, V, False, None, None, 0.0, None, None, False, None, rung, Cache(used, None, scales=scales))
            return graph_of([lambda each=each: call(*each) for each in there], unlike_of(K, V), most)

        def of_fa3(there: list, most: float):
            given = list(fa3_peer.NOT_GIVEN)
            given[8] = used
            attention_chunk, _, *rest = fa3_peer.DEFAULTS
            rest[2] = 0
            tail = (D**-0.5, False, -1, -1, attention_chunk, 0.0, *rest)
            ones = torch.ones(batch, kv_heads, device="cuda")

            def call(q, K, V, *scales):
                given[17:20] = (ones, *scales) if scales else (None,) * 3
                return torch.ops.flash_attn_3.fwd(q, K, V, *given, *tail)[0]

            there = [(q.to(K.dtype), K, *others) for q, K, *others in there]
            return graph_of([lambda each=each: call(*each) for each in there], unlike_of(*dequantised(*there[0][1:])), most)

        by_tokens = lambda K, V, *scales: (K.contiguous(), V.contiguous(), *scales)  # quantize_kv lays four bits by heads
        quantised = lambda dtype, per=None: [(q, *by_tokens(*flash_ladder.quantize_kv(K, V, dtype, per=per))) for q, K, V in copies]
        graphs = {rung: lambda rung=rung: of_rung(rung, copies) for rung in halves}
        graphs |= {f"{rung} {name}": lambda rung=rung, name=name: of_rung(rung, quantised(BYTES[name], PER.get(rung)))
                   for rung in rungs for name in READERS.get(rung, ())}  # fmt: skip
        by_heads = lambda there: [(q, *(each.transpose(1, 2).contiguous().transpose(1, 2) for each in others)) for q, *others in there]
        graphs |= {f"{rung} int4 heads": lambda rung=rung: of_rung(rung, by_heads(quantised(BYTES["int4"])))
                   for rung in rungs if rung in ("d22_smallest", "d23_neighbours")}  # fmt: skip
        if "fa3" in peers.contenders():
            graphs = {"fa3": lambda: of_fa3(copies, peers.MOST_UNLIKE[torch.bfloat16]),
                      "fa3 e4m3": lambda: of_fa3(quantised(BYTES["e4m3"]), 0.1)} | graphs  # whose q and weights are e4m3, too
        text = f"lens_k={','.join(map(str, lengths))}" if len(set(lengths)) > 1 else ""
        words = [f"b={batch}", f"h={HEADS}", f"kv={kv_heads}", "nq=1", f"nk={room}", f"d={D}", "bf16", text]

        def bytes_of(name: str) -> float:
            rung, kind = (*name.split(), "")[:2]
            of_scales = 4 / D if kind == "int4" or PER.get(rung) == "token" else 0
            return numbers * ({"e4m3": 1, "int8": 1, "int4": 0.5}.get(kind, 2) + of_scales)

        yield " ".join(filter(None, words)), bytes_of, graphs


def dequantised(K, V, *scales):
    """K and V as numbers: what bytes stand for, or themselves."""
    if not scales:
        return K, V
    if K.dtype == torch.uint8:  # of four bits with their sign, the even column lower
        K, V = (torch.stack(((each << 4).view(torch.int8) >> 4, each.view(torch.int8) >> 4), -1).flatten(-2) for each in (K, V))
        return tuple(each * scale[..., None] for each, scale in zip((K, V), scales))
    of_head = K.shape[0], K.shape[2]
    fit = lambda scale: scale[:, None, :, None] if scale.shape == of_head else scale[:, None] if scale.shape == (*of_head, D) else scale[..., None]
    return tuple(each.float() * fit(scale) for each, scale in zip((K, V), scales))


def microseconds(graph: torch.cuda.CUDAGraph) -> float:
    """Of a launch; one replay goes before that is not timed."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / LAUNCHES


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go, after each problem")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--rungs", nargs="+", default=["d02_split", "d04_warps", "d05_dependent"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cache", action="store_true", help="the problems that have one")
    parser.add_argument("--bytes", action="store_true", help="caches of bytes, beside bf16")
    parser.add_argument("--only", nargs="+", default=[], help="words that a problem has")
    options = parser.parse_args(arguments)
    last, rows = options.rungs[-1], []
    if options.bytes:
        last += f" {READERS[last][0]}"
    for words, bytes_read, makers in (byte_cases if options.bytes else cached_cases if options.cache else cases)(options.rungs):
        if not set(options.only) <= set(words.split()):
            continue
        graphs = {}
        for name, make in makers.items():
            try:
                graphs[name] = make()
            except Exception as reason:  # whoever does not take it says so in its own way
                torch.cuda.synchronize()
                print(f"  {name}: no: {str(reason).strip().splitlines()[0][:150]}", file=sys.stderr)
        names, times = list(graphs), {name: [] for name in graphs}
        for _ in range(options.rounds):
            random.Random(len(times[names[0]])).shuffle(names)
            for name in names:
                times[name].append(microseconds(graphs[name][0]))
        for name, its in times.items():
            ratios = [a / b for a, b in zip(its, times[last])] if last in times else []
            low, high = peers.interval(ratios) if ratios else ("", "")
            us = statistics.median(its)
            rows.append({"gpu": torch.cuda.get_device_name(), "problem": words, "attention": name, "rounds": options.rounds, "us_median": f"{us:.2f}",
                         "gb_per_s": f"{bytes_read(name) / us / 1000:.0f}", "over": f"{statistics.median(ratios):.3f}" if ratios else "",
                         "over_lo": f"{low:.3f}" if ratios else "", "over_hi": f"{high:.3f}" if ratios else "", "last": last,
                         "commit": options.commit, "date": datetime.date.today().isoformat()})  # fmt: skip
            print(f"{words:<50} {name:<22} {us:9.2f} us {bytes_read(name) / us / 1000:7.0f} GB/s  {rows[-1]['over']}", file=sys.stderr, flush=True)
        with open(options.csv, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        graphs.clear()
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
