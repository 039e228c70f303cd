"""Models of transformers, two layers with random weights: with our kernels as with transformers' own attention. On the emulator they are
tiny, on a GPU as wide as a Llama 8B.
    python3 -m unittest discover -s python/tests -p transformers_tests.py"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import unittest
import warnings
from unittest import mock

for package in ("torch", "transformers"):
    if importlib.util.find_spec(package) is None:
        print(f"Skipped: this Python has no {package}")
        sys.exit(77)

import torch
import transformers

import flash_ladder.transformers
from flash_ladder import _native

flash_ladder.transformers.register()
warnings.simplefilter("ignore")
torch.set_num_threads(1)  # for matrices as small as these
NAME = flash_ladder.transformers.NAME
TOKENS = 101
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TIMES = 16 if DEVICE.type == "cuda" else 1  # as wide
torch.set_default_device(DEVICE)


def two_layers(family: str, kv_heads: int, dtype: torch.dtype, **more):
    config = getattr(transformers, f"{family}Config")(
        vocab_size=TOKENS, hidden_size=256 * TIMES, intermediate_size=128 * TIMES, num_hidden_layers=2, num_attention_heads=2 * TIMES,
        num_key_value_heads=kv_heads * TIMES, max_position_embeddings=512, **{"head_dim": 128, **more},
    )  # fmt: skip
    torch.manual_seed(0)
    return getattr(transformers, f"{family}ForCausalLM")(config).to(dtype).eval()


def in_a_graph():
    """A compiled step, on this device too."""
    config = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
    config._compile_all_devices = True
    return config


@contextlib.contextmanager
def rungs():
    """Of the calls in it, in order."""
    used, run = [], _native.Plan.run
    with mock.patch.object(_native.Plan, "run", lambda plan, *arguments: (used.append(plan.rung), run(plan, *arguments))[1]):
        yield used


class Models(unittest.TestCase):
    def logits(self, model, name, ids, mask):
        model.set_attn_implementation(name)
        with torch.no_grad():
            return model(ids, attention_mask=mask).logits

    def compare(self, model, mask=None, n=128):
        ids = torch.randint(TOKENS, (2, n), generator=torch.Generator(DEVICE).manual_seed(1))
        wanted, found = (self.logits(model, name, ids, mask) for name in ("eager", NAME))
        kept = slice(None) if mask is None else mask.bool()
        step = {torch.float16: 2**-10, torch.bfloat16: 2**-7}[model.dtype]
        self.assertLess((found - wanted)[kept].abs().max().item(), 4 * step * wanted.abs().max().item())

    def test_prefill(self):
        self.compare(two_layers("Llama", 2, torch.float16))

    def test_prefill_in_bf16(self):
        self.compare(two_layers("Llama", 2, torch.bfloat16), n=77)

    def test_prefill_grouped(self):
        self.compare(two_layers("Llama", 1, torch.bfloat16), n=77)

    def test_prefill_padded_on_either_side(self):
        mask = torch.ones(2, 128, dtype=torch.long)
        mask[0, :28] = 0
        mask[1, 100:] = 0
        self.compare(two_layers("Llama", 2, torch.float16), mask)  # by no rung in one call
        mask[1, :3] = 0
        for kv_heads in (1, 2):
            self.compare(two_layers("Llama", kv_heads, torch.bfloat16), mask)
        self.compare(two_layers("Mistral", 1, torch.bfloat16, sliding_window=40, use_cache=False), mask)
        self.compare(two_layers("Gemma2", 1, torch.bfloat16, sliding_window=40, use_cache=False), mask)

    def test_a_mask_with_gaps_is_refused(self):
        mask = torch.ones(2, 128, dtype=torch.long)
        mask[1, 50] = 0
        with self.assertRaises(NotImplementedError):
            self.logits(two_layers("Llama", 2, torch.bfloat16), NAME, torch.zeros(2, 128, dtype=torch.long), mask)

    def test_a_window(self):
        self.compare(two_layers("Mistral", 1, torch.bfloat16, sliding_window=40), n=77)

    def test_a_softcap(self):
        self.compare(two_layers("Gemma2", 1, torch.bfloat16, sliding_window=40), n=77)

    def test_gradients(self):
        self.compare_gradients(two_layers("Llama", 2, torch.float16))
        self.compare_gradients(two_layers("Llama", 1, torch.bfloat16))
        mask = torch.ones(2, 128, dtype=torch.long)
        mask[0, :28] = 0
        mask[1, 100:] = 0
        self.compare_gradients(two_layers("Llama", 1, torch.bfloat16), mask)

    def compare_gradients(self, model, mask=None):
        ids = torch.randint(TOKENS, (2, 128), generator=torch.Generator(DEVICE).manual_seed(1))
        labels = ids if mask is None else ids.masked_fill((mask & mask.roll(1, 1)) == 0, -100)  # of padding and what it says no loss
        gradients = {}
        for name in ("eager", NAME):
            model.set_attn_implementation(name)
            model.zero_grad()
            model(ids, attention_mask=mask, labels=labels).loss.backward()
            gradients[name] = {of: each.grad.float() for of, each in model.named_parameters()}
        for of, wanted in gradients["eager"].items():
            self.assertLess((gradients[NAME][of] - wanted).norm().item(), 0.05 * wanted.norm().item(), of)

    def generate(self, model, **options):
        """From one prompt that is padded and one that is not: logits of each step, as eager has them. The words are given, for of two that are
        equally likely a rounding would choose one."""
        ids = torch.randint(TOKENS, (2, 9), generator=torch.Generator(DEVICE).manual_seed(2))
        mask = torch.ones_like(ids)
        mask[0, :4] = 0
        logits = {}
        for name in ("eager", NAME):
            model.set_attn_implementation(name)
            made = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0, output_logits=True,
                                  prefix_allowed_tokens_fn=lambda sequence, said: [(7 * len(said) + sequence) % TOKENS],
                                  return_dict_in_generate=True, **options)  # fmt: skip
            logits[name] = torch.stack(made.logits)
        step = {torch.float16: 2**-10, torch.bfloat16: 2**-7}[model.dtype]
        self.assertLess((logits["eager"] - logits[NAME]).abs().max().item(), 4 * step * logits["eager"].abs().max().item())

    def test_generation_with_a_cache(self):
        for kv_heads in (1, 2):
            self.generate(two_layers("Llama", kv_heads, torch.bfloat16))

    def test_generation_through_a_window(self):
        self.generate(two_layers("Mistral", 1, torch.bfloat16, sliding_window=6))

    def test_generation_with_a_cache_of_fixed_size(self):
        self.generate(two_layers("Llama", 2, torch.bfloat16), cache_implementation="static")

    def test_greedy_tokens_are_eagers(self):
        """Of a prompt that is padded and one that is not, or of two that are as long: 32 tokens, and rungs of decoding make them."""
        steps, static = 32, {"cache_implementation": "static"}
        model = two_layers("Llama", 1, torch.float16)
        ids = torch.randint(TOKENS, (2, 9), generator=torch.Generator(DEVICE).manual_seed(6))
        for padding in (4, 0):
            mask = torch.ones(2, 9, dtype=torch.long)
            mask[0, :padding] = 0

            def generated(name, **options):
                model.set_attn_implementation(name)
                return model.generate(ids, attention_mask=mask, max_new_tokens=steps, min_new_tokens=steps, do_sample=False, pad_token_id=0,
                                      output_logits=True, return_dict_in_generate=True, **options)  # fmt: skip

            wanted = generated("eager")
            for options in ({}, static, *[{**static, "compile_config": in_a_graph()}] * (padding > 0)):
                with self.subTest(padding=padding, **options), rungs() as used:
                    unlike = (generated(NAME, **options).sequences != wanted.sequences).nonzero().tolist()
                    if DEVICE.type == "cpu":
                        self.assertEqual(unlike, [])
                    elif unlike:  # on a GPU the model is a wide one, and of two words that are equally likely a rounding chooses
                        logits = wanted.logits[min(at for _, at in unlike) - ids.shape[1]]
                        best = logits[min(unlike, key=lambda each: each[1])[0]].topk(2).values
                        self.assertLess((best[0] - best[1]).item(), 4 * 2**-10 * logits.abs().max().item())
                if DEVICE.type == "cpu":  # there no call goes past Python
                    self.assertEqual([each[0] for each in used[2:]], ["d"] * 2 * (steps - 1))

    @unittest.skipIf(DEVICE.type == "cpu", "a CUDA graph")
    def test_a_step_is_a_cuda_graph(self):
        """A step of a cache of fixed size waits for nothing, and replays as the cache grows."""
        model = two_layers("Llama", 1, torch.float16)
        ids = torch.randint(TOKENS, (2, 9), generator=torch.Generator(DEVICE).manual_seed(6))
        padded = torch.ones(2, 40, dtype=torch.long)
        padded[0, :4] = 0
        for mask in (None, padded):
            logits = {}
            for name in ("eager", NAME):
                model.set_attn_implementation(name)
                cache = transformers.StaticCache(config=model.config, max_cache_len=40)
                token, after = ids[:, :1].clone(), []
                step = lambda: model(token, attention_mask=mask, cache=cache, use_cache=True).logits
                with torch.no_grad():
                    model(ids, attention_mask=None if mask is None else mask[:, :9], cache=cache, use_cache=True)
                    if name == NAME:
                        step()  # rungs are chosen
                        cache.crop(-1)
                        torch.cuda.set_sync_debug_mode("error")
                        try:
                            step()
                        finally:
                            torch.cuda.set_sync_debug_mode("default")
                        cache.crop(-1)
                        graph = torch.cuda.CUDAGraph()
                        with torch.cuda.graph(graph):
                            made = step()  # which is done at a replay alone
                    for i in range(1, 9):
                        token.copy_(ids[:, i : i + 1])
                        if name == NAME:
                            graph.replay()
                        after.append((made if name == NAME else step()).clone())
                logits[name] = torch.stack(after)
            self.assertLess((logits["eager"] - logits[NAME]).abs().max().item(), 4 * 2**-10 * logits["eager"].abs().max().item())

    def test_one_query_under_functions_of_a_score(self):
        """A rung of decoding has those, of padded keys, too. Of more than 128 columns one of several lengths has, of padded keys where they
        lie, or else of a copy."""
        static = {"cache_implementation": "static"}
        for d, is_of_decoding in ((128, True), (256, False)):
            for options in ({}, static, {**static, "compile_config": in_a_graph()}):
                with self.subTest(d=d, **options), rungs() as used:
                    self.generate(two_layers("Gemma2", 1, torch.bfloat16, sliding_window=6, head_dim=d), **options)
                if DEVICE.type == "cpu":
                    self.assertEqual([each[0] == "d" for each in used], [False] * 2 + [is_of_decoding] * 6)

    def test_one_query_with_gradients(self):
        model = two_layers("Llama", 1, torch.float16)
        mask = torch.ones(2, 1, dtype=torch.long)
        gradients = {}
        for name in ("eager", NAME):
            model.set_attn_implementation(name)
            model.zero_grad()
            model(torch.tensor([[3], [5]]), attention_mask=mask).logits.float().square().sum().backward()
            gradients[name] = model.model.layers[0].self_attn.v_proj.weight.grad.float()
        self.assertLess((gradients[NAME] - gradients["eager"]).norm().item(), 0.05 * gradients["eager"].norm().item())

    def test_a_model_is_one_graph(self):
        model = two_layers("Llama", 2, torch.float16)
        model.set_attn_implementation(NAME)
        ids = torch.zeros(1, 128, dtype=torch.long)
        with torch.no_grad():
            compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
            self.assertTrue(torch.equal(compiled(ids).logits, model(ids).logits))

    def test_sequences_in_one_row(self):
        model = two_layers("Llama", 1, torch.bfloat16)
        model.set_attn_implementation(NAME)
        ids = torch.randint(TOKENS, (1, 100), generator=torch.Generator(DEVICE).manual_seed(1))
        positions = torch.cat([torch.arange(70), torch.arange(30)])[None]
        ends = torch.tensor([0, 70, 100], dtype=torch.int32)
        with torch.no_grad():
            apart = torch.cat([model(each).logits for each in ids.split([70, 30], 1)], 1)
            together = model(ids, position_ids=positions).logits
            told = model(ids, position_ids=positions, cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=70, max_length_k=70).logits
            self.assertLess((together - apart).abs().max().item(), 4 * 2**-7 * apart.abs().max().item())
            self.assertTrue(torch.equal(told, together))
            with self.assertRaises(NotImplementedError):
                model(ids, position_ids=2 * positions)


if __name__ == "__main__":
    unittest.main()
