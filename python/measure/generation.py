"""Generation by a model of transformers of Llama 3 8B's shape with random weights, in bf16, beside a cache of fixed size that is filled with
random numbers: tokens per second with different attentions, in turns. A step is the whole model for one more token of each sequence, and
the choice of the most likely one: in a CUDA graph, and by launches, as users call it.
    python3 python/measure/generation.py --csv docs/results/CARD_generation.csv --commit HASH [--sequences 1 8 64] [--tokens 2048 32768]
A row is an attention: `ms` of a step, `over_sdpa` SDPA's time over its own, the median of the rounds' ratios, between `over_lo` and `over_hi`
(95 %), both empty where SDPA finds no room; `attention_share`, in a graph, is the time of the layers' attention alone over a step's. `sequences` are fewer than `asked` where
the cache of all does not fit. Without a GPU: a tiny model, on the emulator."""

from __future__ import annotations

import argparse
import csv
import datetime
import gc
import inspect
import random
import statistics
import sys
import warnings
from typing import NamedTuple

import flash_ladder.transformers
import peers
import torch
import transformers
from peers import DEVICE, fa3_peer
from prefill import milliseconds
from transformers.masking_utils import create_causal_mask

warnings.simplefilter("ignore")
flash_ladder.transformers.register()
ON_GPU = DEVICE == "cuda"
SIZES = dict(vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8)
TINY = dict(vocab_size=128, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
ROOM = 64  # of the cache, behind the tokens that are there
KEPT_FREE = 6 << 30  # bytes, for whatever a step needs
CACHE = "past_key_values" if "past_key_values" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "cache"  # its name
NAMES = {"sdpa": "sdpa", "flash_ladder": flash_ladder.transformers.NAME, "fa3": "fa3"}


def fa3(module, query, key, value, attention_mask, scaling=None, **others):
    """FlashAttention-3 of xformers; the mask says how many keys each sequence has, as flash_ladder's does."""
    q, k, v = (each.transpose(1, 2) for each in (query, key, value))
    given = list(fa3_peer.NOT_GIVEN)
    given[8] = attention_mask.view(-1).int()
    attention_chunk, _, *rest = fa3_peer.DEFAULTS
    rest[2] = 0  # it chooses the number of splits
    return torch.ops.flash_attn_3.fwd(q, k, v, *given, scaling, False, -1, -1, attention_chunk, 0.0, *rest)[0], None


def attentions() -> list[str]:
    found = ["sdpa", "flash_ladder"]
    if ON_GPU:
        try:
            fa3_peer.load_extension()
            transformers.AttentionInterface.register("fa3", fa3)
            transformers.AttentionMaskInterface.register("fa3", flash_ladder.transformers.mask)
            found.append("fa3")
        except peers.Refusal as reason:
            print(f"Without FlashAttention-3: {reason}", file=sys.stderr)
    return found


def make_model():
    config = transformers.LlamaConfig(**(SIZES if ON_GPU else TINY), head_dim=128, max_position_embeddings=1 << 17)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(DEVICE):
        model = transformers.LlamaForCausalLM(config).eval()
    torch.set_default_dtype(torch.float32)
    return model


class Case:
    """A cache with so many tokens of each sequence, and what is done with it."""

    def __init__(self, model, sequences: int, tokens: int) -> None:
        config, self.model, self.tokens = model.config, model, tokens
        self.token = torch.randint(config.vocab_size, (sequences, 1), device=DEVICE)
        self.queries = torch.randn(sequences, config.num_attention_heads, 1, config.head_dim, device=DEVICE, dtype=torch.bfloat16)
        self.cache = transformers.StaticCache(config=config, max_cache_len=tokens + ROOM)
        self.cache.early_initialization(sequences, config.num_key_value_heads, config.head_dim, torch.bfloat16, torch.device(DEVICE))
        for layer in self.cache.layers:
            layer.keys.normal_()
            layer.values.normal_()
        self.rewind()

    def rewind(self) -> None:
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.tokens)

    def step(self) -> torch.Tensor:
        logits = self.model(self.token, **{CACHE: self.cache}, use_cache=True, logits_to_keep=1).logits
        self.token.copy_(logits[:, -1:].argmax(-1))
        return logits

    def attention_alone(self) -> None:
        """Of all layers, and the mask."""
        like = torch.empty(len(self.token), 1, 0, device=DEVICE, dtype=torch.bfloat16)
        mask = create_causal_mask(self.model.config, like, None, self.cache)
        attend = transformers.AttentionInterface()[self.model.config._attn_implementation]
        for layer, of_cache in zip(self.model.model.layers, self.cache.layers):
            attend(layer.self_attn, self.queries, of_cache.keys, of_cache.values, mask, scaling=layer.self_attn.scaling)


class Ways(NamedTuple):
    """Of an attention."""

    logits: torch.Tensor  # of the first step
    launch: object  # a step
    replay: object  # one in a graph, or None
    alone: object  # the attention of one, in a graph, or None


def graph_of(call):
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph.replay


def ways(case: Case, name: str) -> Ways:
    def use(call):
        def used():
            case.model.config._attn_implementation = NAMES[name]
            return call()

        return used

    first = case.token.clone()
    launch = use(case.step)
    logits = launch().float()
    replay, alone = (graph_of(use(each)) for each in (case.step, case.attention_alone)) if ON_GPU else (None, None)
    case.token.copy_(first)
    case.rewind()
    return Ways(logits, launch, replay, alone)


def race(found: dict[str, Ways], case: Case, how: str, rounds: int, steps: int) -> dict[str, list[float]]:
    """Milliseconds of a step in each round."""
    times = {name: [] for name in found}
    for turn in range(rounds + 1):  # the first one is not kept
        names = list(found)
        random.Random(turn).shuffle(names)
        for name in names:
            call = getattr(found[name], how)
            case.rewind()
            ms = milliseconds(lambda: [call() for _ in range(steps)]) / steps
            times[name] += [ms] * (turn > 0)
    return times


@torch.no_grad()
def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", required=True, help="where the rows go, after each case")
    parser.add_argument("--commit", required=True, help="of this repository, for the rows")
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 64] if ON_GPU else [1, 2])
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 32768] if ON_GPU else [64])
    parser.add_argument("--rounds", type=int, default=8 if ON_GPU else 1)
    parser.add_argument("--steps", type=int, default=16 if ON_GPU else 2, help=f"of a round, {ROOM} at most")
    options = parser.parse_args(arguments)
    model, names, rows = make_model(), attentions(), []
    config = model.config
    for tokens in options.tokens:
        for asked in options.sequences:
            of_each = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * (tokens + ROOM)
            sequences = asked
            if ON_GPU and (fit := (torch.cuda.mem_get_info()[0] - KEPT_FREE) // of_each) < asked:
                sequences = fit // 8 * 8 or fit
                print(f"{asked} sequences of {tokens} tokens have {asked * of_each / 1e9:.0f} GB of keys and values; beside the model {sequences} fit",
                      file=sys.stderr)  # fmt: skip
            if sequences == 0:
                continue
            case, found = Case(model, sequences, tokens), {}
            for name in names:
                try:
                    found[name] = ways(case, name)
                except (RuntimeError, NotImplementedError) as reason:
                    print(f"  {name}: no: {str(reason).strip().splitlines()[0][:150]}", file=sys.stderr)
                    case.rewind()
            for how in ("replay", "launch") if ON_GPU else ("launch",):
                rounds = options.rounds if how == "replay" else -(-options.rounds // 2)  # by launches it is the host's time, mostly
                times = race(found, case, how, rounds, options.steps)
                alone = race(found, case, "alone", 3, 4) if how == "replay" else {}
                for name, its in times.items():
                    ms, over, unlike = statistics.median(its), [""] * 3, ""
                    if "sdpa" in times:
                        ratios = [a / b for a, b in zip(times["sdpa"], its)]
                        over = [f"{ratio:.4f}" for ratio in (statistics.median(ratios), *peers.interval(ratios))]
                        beside = found["sdpa"].logits
                        unlike = f"{((found[name].logits - beside).norm() / beside.norm()).item():.1e}"
                    rows.append({
                        "gpu": torch.cuda.get_device_name() if ON_GPU else "emulator", "torch": torch.__version__,
                        "transformers": transformers.__version__, "attention": name, "how": {"replay": "graph", "launch": "launches"}[how],
                        "asked": asked, "sequences": sequences, "tokens": tokens, "cache_gb": f"{sequences * of_each / 1e9:.1f}",
                        "rounds": rounds, "ms": f"{ms:.3f}", "tokens_per_s": f"{sequences / ms * 1e3:.0f}",
                        "attention_share": f"{statistics.median(alone[name]) / ms:.3f}" if alone else "",
                        **dict(zip(("over_sdpa", "over_lo", "over_hi"), over)), "unlike_sdpa": unlike, "commit": options.commit, "date": datetime.date.today().isoformat(),
                    })  # fmt: skip
                    shown = "attention", "how", "sequences", "tokens", "ms", "tokens_per_s", "attention_share", "over_sdpa", "unlike_sdpa"
                    print({key: rows[-1][key] for key in shown}, file=sys.stderr, flush=True)
            with open(options.csv, "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
            del case, found
            gc.collect()
            if ON_GPU:
                torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
