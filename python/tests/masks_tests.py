"""What masks of transformers mean: tiny models of many kinds, with eager's logits as the value, and what no rung takes refused.
    python3 -m unittest discover -s python/tests -p masks_tests.py"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
import unittest
import warnings

for package in ("torch", "transformers"):
    if importlib.util.find_spec(package) is None:
        print(f"Skipped: this Python has no {package}")
        sys.exit(77)

import torch
import transformers
from transformers import masking_utils as masks

import flash_ladder.transformers

flash_ladder.transformers.register()
warnings.simplefilter("ignore")
transformers.utils.logging.set_verbosity_error()
torch.set_num_threads(1)
NAME = flash_ladder.transformers.NAME
TOKENS, BF16 = 101, torch.bfloat16
STEP = {torch.float16: 2**-10, BF16: 2**-7}
SIZES = dict(vocab_size=TOKENS, hidden_size=256, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             head_dim=128, max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2)  # fmt: skip
EXPERTS = dict(num_local_experts=2, num_experts_per_tok=2)  # all: a rounding would choose another one


def made(kind, config, dtype=BF16):
    torch.manual_seed(0)
    model = kind(config).to(dtype).eval()
    for name, each in model.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(each)
    return model


def causal_lm(family: str, dtype=BF16, **more):
    return made(getattr(transformers, f"{family}ForCausalLM"), getattr(transformers, f"{family}Config")(**{**SIZES, **more}), dtype)


def bart():
    return made(transformers.BartForConditionalGeneration, transformers.BartConfig(
        vocab_size=TOKENS, d_model=256, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=128, decoder_ffn_dim=128, max_position_embeddings=128))  # fmt: skip


def t5gemma():
    of_one = dict(SIZES, sliding_window=6, query_pre_attn_scalar=128)
    both = {name: transformers.T5GemmaModuleConfig(**of_one) for name in ("encoder", "decoder")}
    return made(transformers.T5GemmaForConditionalGeneration, transformers.T5GemmaConfig(**both, vocab_size=TOKENS))


def llama4(chunk: int):
    return made(transformers.Llama4ForCausalLM, transformers.Llama4TextConfig(**SIZES, **EXPERTS, attention_chunk_size=chunk, intermediate_size_mlp=128))


def gpt_oss(dtype=BF16):
    return causal_lm("GptOss", dtype, **EXPERTS, sliding_window=6)


def modern_bert():
    more = dict(SIZES, num_hidden_layers=4)
    for name in ("head_dim", "num_key_value_heads"):
        del more[name]
    return made(transformers.ModernBertForMaskedLM, transformers.ModernBertConfig(**more, local_attention=12, global_attn_every_n_layers=2, cls_token_id=3, sep_token_id=4))


def gemma3():
    text = dict(SIZES, sliding_window=6, query_pre_attn_scalar=128, layer_types=["sliding_attention", "full_attention"])
    vision = dict(hidden_size=128, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=100, boi_token_index=98, eoi_token_index=99)
    return made(transformers.Gemma3ForConditionalGeneration, config)


def paligemma():
    text = transformers.GemmaConfig(**SIZES)
    vision = transformers.SiglipVisionConfig(hidden_size=128, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1, image_size=28, patch_size=14)
    config = transformers.PaliGemmaConfig(text_config=text, vision_config=vision, image_token_index=100, projection_dim=256)
    return made(transformers.PaliGemmaForConditionalGeneration, config)


def tokens(rows=2, n=20, seed=1):
    return torch.randint(3, 90, (rows, n), generator=torch.Generator().manual_seed(seed))


def padding(n=20):
    """Left of one text, right of the other."""
    mask = torch.ones(2, n, dtype=torch.long)
    mask[0, :5] = 0
    mask[1, n - 5 :] = 0
    return mask


TWO = torch.cat([torch.arange(12), torch.arange(8)])[None]  # texts in a row of 20


class Case(unittest.TestCase):
    def logits(self, model, name, compiled=False, **inputs):
        model.set_attn_implementation(name)
        torch._dynamo.reset()
        call = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
        with torch.no_grad():
            return call(**inputs).logits

    def same(self, model, kept=None, compiled=(False,), **inputs):
        wanted = self.logits(model, "eager", **inputs)
        kept = slice(None) if kept is None else kept.bool()
        for each in set(compiled) & set(BOTH):
            with self.subTest(compiled=each):
                found = self.logits(model, NAME, each, **inputs)
                self.assertLess((found - wanted)[kept].abs().max(), 4 * STEP[model.dtype] * wanted.abs().max())

    def refused(self, model, words="no rung takes", compiled=(False,), **inputs):
        for each in set(compiled) & set(BOTH):
            with self.subTest(compiled=each), self.assertRaisesRegex(Exception, words) as refusal:
                self.logits(model, NAME, each, **inputs)
            if not each:
                self.assertIsInstance(refusal.exception, NotImplementedError)

    def generated(self, model, kept=slice(None), **options):
        """Logits of each step, of words that are given."""
        logits = {}
        for name in ("eager", NAME):
            model.set_attn_implementation(name)
            made = model.generate(max_new_tokens=4, do_sample=False, pad_token_id=0, output_logits=True, return_dict_in_generate=True, eos_token_id=TOKENS - 1,
                                  prefix_allowed_tokens_fn=lambda row, said: [3 + (7 * len(said) + row) % 80], **options)  # fmt: skip
            logits[name] = torch.stack(made.logits)
        self.assertLess((logits["eager"] - logits[NAME]).abs().max(), 4 * STEP[model.dtype] * logits["eager"].abs().max())


def _follows_closures() -> bool:
    """Whether torch.compile follows what a mask function has in its closure; that of PyTorch 2.11 does not, and breaks the graph there."""
    def of_its_closure(x):
        number = 2
        return x * [cell.cell_contents for cell in (lambda: number).__closure__ or ()][0]

    try:
        torch.compile(of_its_closure, fullgraph=True, backend="eager")(torch.ones(1))
    except Exception:
        return False
    return True


BOTH = (False, True) if _follows_closures() else (False,)


class Models(Case):
    def test_encoders_and_decoders(self):
        ids, mask, said = tokens(), padding(), tokens(n=7, seed=2)
        said_mask = torch.ones(2, 7, dtype=torch.long)
        said_mask[1, 5:] = 0
        for model, compiled in ((bart(), BOTH), (t5gemma(), (False,))):
            with self.subTest(type(model).__name__):
                self.same(model, input_ids=ids, decoder_input_ids=said)
                self.same(model, input_ids=ids, attention_mask=mask, decoder_input_ids=said, compiled=compiled)
                self.same(model, said_mask, input_ids=ids, attention_mask=mask, decoder_input_ids=said, decoder_attention_mask=said_mask)
                self.generated(model, input_ids=ids, attention_mask=mask)
                self.generated(model, input_ids=ids)

    def test_windows_that_are_not_causal(self):
        for window in (1, 6, 19, 40):
            model = causal_lm("Mistral", sliding_window=window, is_causal=False)
            model.config.is_causal = False
            self.same(model, compiled=BOTH, input_ids=tokens(), use_cache=False)
            self.same(model, padding(), compiled=BOTH, input_ids=tokens(), attention_mask=padding(), use_cache=False)
        model = causal_lm("Llama", is_causal=False)
        model.config.is_causal = False
        self.same(model, compiled=BOTH, input_ids=tokens(), use_cache=False)
        self.same(model, compiled=BOTH, input_ids=tokens(), attention_mask=padding(), use_cache=False)  # padded queries, too
        model = modern_bert()
        self.same(model, input_ids=tokens())
        self.same(model, padding(), input_ids=tokens(), attention_mask=padding())

    def test_chunks(self):
        for chunk, n in ((2, 4), (2, 20), (7, 20), (64, 20)):
            model = llama4(chunk)
            with self.subTest(chunk=chunk, n=n):
                self.same(model, compiled=BOTH if n == 20 else (False,), input_ids=tokens(n=n))
                self.same(model, padding(n) if n == 20 else None, input_ids=tokens(n=n), attention_mask=padding(n) if n == 20 else None)
        model = llama4(7)
        self.same(model, padding(), compiled=(True,), input_ids=tokens(), attention_mask=padding())
        self.same(model, input_ids=tokens(), position_ids=TWO.expand(2, -1), use_cache=False)
        mask = padding()
        mask[1] = 1
        self.generated(model, input_ids=tokens(), attention_mask=mask)

    def test_sinks(self):
        model = gpt_oss()
        self.same(model, compiled=(False,), input_ids=tokens())
        self.same(model, padding(), input_ids=tokens(), attention_mask=padding())
        mask = padding()
        mask[1] = 1
        self.generated(model, input_ids=tokens(), attention_mask=mask)

    def test_pictures_see_themselves_whole(self):
        model, ids = gemma3(), tokens()
        self.same(model, input_ids=ids)
        self.same(model, input_ids=ids, token_type_ids=torch.zeros_like(ids))
        self.same(model, padding(), input_ids=ids, attention_mask=padding(), token_type_ids=torch.zeros_like(ids))
        where = torch.zeros_like(ids)
        where[:, 4:8] = 1
        self.same(model, input_ids=ids, token_type_ids=where)
        self.same(model, padding(), input_ids=ids, attention_mask=padding(), token_type_ids=where)
        ids = ids.clone()
        ids[:, 4:8] = 100
        pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(0)).to(BF16)
        self.same(model, input_ids=ids, pixel_values=pixels, token_type_ids=where)
        self.generated(model, input_ids=ids, pixel_values=pixels, token_type_ids=where)


    def test_prefixes(self):
        model, ids = paligemma(), tokens()
        behind = torch.ones_like(ids)
        behind[0, :9] = behind[1, :3] = 0
        self.same(model, input_ids=ids, token_type_ids=behind)
        self.same(model, padding(), input_ids=ids, attention_mask=padding(), token_type_ids=behind)
        whole = self.logits(model, NAME, input_ids=ids, token_type_ids=behind * 0)
        self.assertFalse(torch.equal(whole, self.logits(model, NAME, input_ids=ids, token_type_ids=behind)))
        self.generated(model, input_ids=ids, token_type_ids=behind * 0)


class Rows(Case):
    """Of texts in one row."""

    def test_rows_of_several_texts(self):
        model = causal_lm("Llama")
        for positions in (TWO, TWO.expand(2, -1), torch.cat([TWO, torch.arange(20)[None]]), torch.cat([TWO, TWO.roll(8, 1)])):
            self.same(model, compiled=BOTH, input_ids=tokens(), position_ids=positions, use_cache=False)
        self.same(causal_lm("Mistral", sliding_window=5), compiled=BOTH, input_ids=tokens(), position_ids=TWO.expand(2, -1), use_cache=False)
        four = tokens(n=4)
        self.same(model, input_ids=four, position_ids=torch.tensor([[0, 1, 0, 1]] * 2), use_cache=False)  # as it was reported

    def test_with_a_cache_that_is_empty_too(self):
        """Where transformers' own mask does not know of it."""
        model, ids = causal_lm("Llama"), tokens()
        apart = torch.cat([self.logits(model, "eager", input_ids=each) for each in ids.split([12, 8], 1)], 1)
        for positions in (TWO, TWO.expand(2, -1)):
            for compiled in BOTH:
                found = self.logits(model, NAME, compiled, input_ids=ids, position_ids=positions)
                self.assertLess((found - apart).abs().max(), 4 * 2**-7 * apart.abs().max())
        self.refused(model, "jump", compiled=BOTH, input_ids=ids, position_ids=2 * TWO)

    def test_models_with_heads_of_their_own(self):
        """Phi-3's of 96 columns, gpt-oss's of 64 with sinks and a window, Gemma 2's of 256 with a softcap: padded, in a row, and word by word."""
        mask = padding()
        mask[1] = 1
        phi3 = dict(hidden_size=192, head_dim=96)
        for model in (causal_lm("Phi3", **phi3), causal_lm("Phi3", torch.float16, **phi3, sliding_window=6),
                      causal_lm("GptOss", **EXPERTS, head_dim=64, sliding_window=6), causal_lm("GptOss", torch.float16, **EXPERTS, head_dim=64, sliding_window=6),
                      causal_lm("Gemma2", head_dim=256, query_pre_attn_scalar=256, sliding_window=5)):  # fmt: skip
            with self.subTest(type(model).__name__, dtype=model.dtype):
                ids = tokens()
                self.same(model, input_ids=ids)
                self.same(model, padding(), input_ids=ids, attention_mask=padding())
                apart = torch.cat([self.logits(model, "eager", input_ids=each) for each in ids.split([12, 8], 1)], 1)
                ends = torch.tensor([0, 12, 20], dtype=torch.int32)
                told = dict(cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=12, max_length_k=12)
                for row, more in ((slice(0, 2), {}), (slice(0, 1), told)):
                    positions = TWO.expand(row.stop, -1)
                    found = self.logits(model, NAME, input_ids=ids[row], position_ids=positions, use_cache=False, **more)
                    self.assertLess((found - apart[row]).abs().max(), 4 * STEP[model.dtype] * apart.abs().max())
                self.generated(model, input_ids=ids, attention_mask=mask)

    def test_in_f16_one_by_one(self):
        model = causal_lm("Llama", torch.float16, num_key_value_heads=2)
        self.same(model, compiled=BOTH, input_ids=tokens(), position_ids=TWO.expand(2, -1), use_cache=False)
        self.same(model, padding(), compiled=BOTH, input_ids=tokens(), attention_mask=padding())

    def test_gradients(self):
        in_a_row, padded = dict(position_ids=TWO.expand(2, -1)), dict(attention_mask=padding())
        models = ((causal_lm("Llama"), BOTH, (in_a_row, padded)), (causal_lm("Llama", torch.float16, num_key_value_heads=2), BOTH, (in_a_row, padded)),
                  (causal_lm("Gemma2", sliding_window=5, query_pre_attn_scalar=128), (False,), (in_a_row, padded)),
                  (gemma3(), (False,), (dict(token_type_ids=(torch.arange(20) // 4 == 1).long().expand(2, -1)),)),
                  (gpt_oss(torch.float16), (False,), (padded,)))  # fmt: skip  # whose eager looks into the other text of a row
        for model, ways, kinds in models:
            ids = tokens()
            for compiled in set(ways) & set(BOTH):
                for inputs in kinds:
                    labels = ids.masked_fill(inputs.get("attention_mask", torch.ones_like(ids)) == 0, -100)
                    labels = labels.masked_fill(labels.roll(1, 1) == -100, -100)
                    found = {}
                    for name in ("eager", NAME):
                        model.set_attn_implementation(name)
                        model.zero_grad()
                        torch._dynamo.reset()
                        call = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled and name == NAME else model
                        call(input_ids=ids, labels=labels, use_cache=False, **inputs).loss.backward()
                        found[name] = {of: each.grad.float() for of, each in model.named_parameters() if each.grad is not None}
                    for of, wanted in found["eager"].items():
                        with self.subTest(model=type(model).__name__, compiled=compiled, of=of, **{name: 0 for name in inputs}):
                            self.assertLess((found[NAME][of] - wanted).norm(), 0.05 * wanted.norm())


class Paddings(Case):
    def test_left_and_right(self):
        for model in (causal_lm("Llama"), causal_lm("Mistral", sliding_window=5), causal_lm("Gemma2", sliding_window=5, query_pre_attn_scalar=128)):
            with self.subTest(type(model).__name__):
                self.same(model, padding(), compiled=BOTH, input_ids=tokens(), attention_mask=padding())
                self.same(model, padding(), input_ids=tokens(), attention_mask=padding().bool())
                self.same(model, input_ids=tokens(), attention_mask=torch.ones(2, 20))

    def test_in_inference_mode(self):
        model = causal_lm("Llama")
        with torch.inference_mode():
            self.same(model, input_ids=tokens())
            self.same(model, padding(), input_ids=tokens(), attention_mask=padding())
            self.same(model, input_ids=tokens(), position_ids=TWO.expand(2, -1).clone(), use_cache=False)
            self.generated(model, input_ids=tokens(), attention_mask=torch.ones(2, 20, dtype=torch.long))
            mask = padding()
            mask[1] = 1
            self.generated(model, input_ids=tokens(), attention_mask=mask)

    def test_positions_that_change_in_inference_mode(self):
        model, ids = causal_lm("Llama"), tokens(1)
        with torch.inference_mode():
            positions = torch.arange(20)[None].clone()
            first = self.logits(model, NAME, input_ids=ids, position_ids=positions)
            positions.copy_(TWO)
            second = self.logits(model, NAME, input_ids=ids, position_ids=positions)
        self.assertFalse(torch.equal(first[:, 12:], second[:, 12:]))

    def test_gaps_are_refused(self):
        mask = padding()
        mask[0, 9] = 0
        for model in (causal_lm("Llama"), bart()):
            more = {} if model.config.model_type == "llama" else dict(decoder_input_ids=tokens(n=7))
            self.refused(model, "gaps", compiled=BOTH, input_ids=tokens(), attention_mask=mask, **more)

    def test_masks_of_four_dimensions(self):
        model = causal_lm("Llama")
        mask = torch.ones(20, 20, dtype=torch.bool).tril().expand(2, 1, -1, -1)
        for each in (mask, torch.where(mask, 0.0, torch.finfo(BF16).min).to(BF16), mask.long()):
            self.refused(model, "no rung takes", compiled=BOTH, input_ids=tokens(), attention_mask=each)

    def test_caches_of_fixed_size(self):
        for model in (causal_lm("Llama"), causal_lm("Mistral", sliding_window=5), gpt_oss()):
            mask = padding()
            mask[1] = 1
            with self.subTest(type(model).__name__):
                for each in (mask, torch.ones_like(mask)):
                    self.generated(model, input_ids=tokens(), attention_mask=each, cache_implementation="static")

    def test_more_than_one_query_beside_a_cache(self):
        model = causal_lm("Llama")
        for mask in (None, padding().roll(5, 1) if False else None):
            found = {}
            for name in ("eager", NAME):
                model.set_attn_implementation(name)
                cache = transformers.DynamicCache(config=model.config)
                with torch.no_grad():
                    model(input_ids=tokens()[:, :9], past_key_values=cache)
                    found[name] = model(input_ids=tokens()[:, 9:], past_key_values=cache).logits
            self.assertLess((found[NAME] - found["eager"]).abs().max(), 4 * 2**-7 * found["eager"].abs().max())


# What a version of transformers has and another has not: positions of a mask's own, and the name of a maker's cache.
remapped = getattr(masks, "remap_positions_for_packed_sequence", None)
CACHE = next(name for name in ("cache", "past_key_values") if name in inspect.signature(masks.create_causal_mask).parameters)


def module(is_causal):
    return types.SimpleNamespace(is_causal=is_causal, training=False, num_key_value_groups=1)


class Functions(Case):
    """Masks as transformers makes them, against sdpa_mask, query by query."""

    def made(self, function, mask=None, n=6, n_k=None, batch=2, **more):
        return dict(batch_size=batch, q_length=n, kv_length=n_k or n, mask_function=function, attention_mask=mask, **more)

    def check(self, **what):
        """With K of ones and V that says which key it is of, O says which keys a query saw."""
        n, n_k, batch = what["q_length"], what["kv_length"], what["batch_size"]
        seen = masks.sdpa_mask(**what, allow_is_causal_skip=False)[:, 0]
        code = flash_ladder.transformers.mask(**what)
        q = torch.zeros(batch, 1, n, 128).bfloat16()
        v = torch.eye(n_k, 128).expand(batch, 1, -1, -1).bfloat16()
        k = torch.zeros_like(v)
        out, _ = flash_ladder.transformers.attend(module(not seen[0, 0].all()), q, k, v, code)
        padded = None
        for row in range(batch):
            for i in range(n):
                found = out[row, i, 0, :n_k] > 0
                if found.any() or seen[row, i].any():
                    if not found.any():  # a padded query's may be 0
                        padded = True
                        self.assertIsNotNone(what["attention_mask"])
                        continue
                    self.assertTrue(torch.equal(found, seen[row, i]), (row, i, found, seen[row, i]))
        return padded

    def test_those_of_transformers(self):
        causal, whole = masks.causal_mask_function, masks.bidirectional_mask_function
        zero = torch.zeros(2, dtype=torch.long)
        packed = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 2, 2]])
        positions = torch.tensor([[0, 1, 2, 0, 1, 2], [0, 0, 1, 2, 0, 1]])
        pictures, prefixes = torch.tensor([[0, 0, -1, -1, 1, 1], [-1, 0, 0, 0, 1, -1]]), torch.tensor([[0, 0, 0, -1, -1, -1], [0, -1, -1, -1, -1, -1]])

        def in_rows(function):
            return masks.and_masks(remapped(function, positions) if remapped else function, masks.packed_sequence_mask_function(packed))

        left, right = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool(), torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
        for function in (causal, whole, masks.sliding_window_causal_mask_function(3), masks.sliding_window_bidirectional_mask_function(2),
                         masks.sliding_window_bidirectional_mask_function(0), masks.chunked_causal_mask_function(2, zero), masks.chunked_causal_mask_function(4, zero + 1),
                         masks.and_masks(masks.sliding_window_causal_mask_function(3), masks.chunked_overlay(4, zero)),
                         masks.and_masks(causal, masks.padding_mask_function(left)), masks.or_masks(causal, masks.blockwise_overlay(packed * 0 - 1)),
                         masks.or_masks(causal, masks.blockwise_overlay(pictures)), masks.or_masks(masks.sliding_window_causal_mask_function(2), masks.blockwise_overlay(pictures)),
                         masks.and_masks(masks.or_masks(causal, masks.blockwise_overlay(pictures)), masks.sliding_window_overlay(2)),
                         masks.or_masks(causal, masks.blockwise_overlay(prefixes)), masks.or_masks(whole, masks.blockwise_overlay(pictures)),
                         masks.and_masks(masks.or_masks(causal, masks.blockwise_overlay(packed * 0 - 1)), masks.sliding_window_overlay(2)),
                         in_rows(causal), in_rows(masks.sliding_window_causal_mask_function(2)), in_rows(masks.chunked_causal_mask_function(2, zero))):  # fmt: skip
            for mask in (None, left, right):
                with self.subTest(function=function.__qualname__, mask=mask):
                    self.check(**self.made(function, mask))

    def test_beside_a_cache(self):
        zero = torch.zeros(2, dtype=torch.long)
        for function in (masks.causal_mask_function, masks.sliding_window_causal_mask_function(3), masks.chunked_causal_mask_function(4, zero)):
            for more in (dict(n=2, n_k=6, q_offset=4), dict(n=1, n_k=6, q_offset=5), dict(n=2, n_k=9, q_offset=3), dict(n=2, n_k=9, q_offset=torch.tensor(3)),
                         dict(n=1, n_k=4, q_offset=7, kv_offset=4)):  # fmt: skip
                for mask in (None, torch.tensor([[0, 1, 1, 1, 1, 1, 1, 1]] * 2).bool()):
                    with self.subTest(function=function.__qualname__, **more):
                        self.check(**self.made(function, mask, **more))

    def test_cross_attention(self):
        """As it was reported: what a padded text says is not heard."""
        whole = masks.bidirectional_mask_function
        code = flash_ladder.transformers.mask(**self.made(whole, torch.tensor([[True, False]]), n=1, n_k=2, batch=1))
        v = torch.tensor([0.0, 1.0]).view(1, 1, 2, 1).expand(-1, -1, -1, 128).bfloat16()
        out, _ = flash_ladder.transformers.attend(module(False), torch.zeros(1, 1, 1, 128).bfloat16(), torch.zeros_like(v), v, code)
        self.assertEqual(out.abs().max(), 0)
        code = flash_ladder.transformers.mask(**self.made(whole, torch.tensor([[True], [False]]), n=2, n_k=1))
        v = torch.ones(2, 1, 1, 128).bfloat16()
        out, _ = flash_ladder.transformers.attend(module(False), torch.zeros(2, 1, 2, 128).bfloat16(), v, v, code)
        self.assertTrue((out[0] == 1).all() and (out[1] == 0).all())
        for n, n_k in ((5, 3), (3, 8), (1, 4)):
            mask = torch.ones(2, n_k, dtype=torch.bool)
            mask[0, n_k - 1] = mask[1, 0] = False
            self.assertIsNone(self.check(**self.made(whole, mask, n=n, n_k=n_k)))

    def test_of_two_dimensions_and_of_none(self):
        """Whoever makes no masks by transformers' functions."""
        q = torch.zeros(1, 1, 4, 128).bfloat16()
        v = torch.eye(4, 128)[None, None].bfloat16()
        for causal, window, mask, wanted in ((True, None, None, torch.ones(4, 4).tril()), (False, None, None, torch.ones(4, 4)), (True, 2, None, torch.ones(4, 4).tril().triu(-1)),
                                             (False, 1, None, torch.ones(4, 4).tril(1).triu(-1)), (False, None, [[1, 1, 0, 0]], torch.tensor([[1, 1, 0, 0]]).expand(4, -1)),
                                             (True, None, [[0, 1, 1, 1]], torch.ones(4, 4).tril() * torch.tensor([0, 1, 1, 1]))):  # fmt: skip
            mask = None if mask is None else torch.tensor(mask)
            out, _ = flash_ladder.transformers.attend(module(causal), q, q, v, mask, sliding_window=window)
            self.assertTrue(torch.equal((out[0, :, 0, :4] > 0).float(), wanted.float()))

    def test_what_cannot_be_read_is_refused(self):
        causal, ids = masks.causal_mask_function, torch.tensor([[0, 0, -1, 0, 1, 1]] * 2)
        blocks = masks.blockwise_overlay(ids)

        def own(batch, head, q, k):
            return k <= q

        class Own:
            def __call__(self, batch, head, q, k):
                return k <= q

        Own.__qualname__ = own.__qualname__ = "causal_mask_function"
        for function in (own, Own(), lambda *where: where[3] <= where[2], masks.or_masks(causal, own), masks.and_masks(causal, own), masks.or_masks(causal, causal),
                         masks.or_masks(causal, blocks, blocks), masks.or_masks(masks.chunked_causal_mask_function(2, torch.zeros(2, dtype=torch.long)), blocks),
                         masks.add_offsets_to_mask_function(causal, 1, 0), *([remapped(causal, ids)] if remapped else [])):  # fmt: skip
            with self.subTest(function), self.assertRaisesRegex(NotImplementedError, "no rung|nothing says"):
                flash_ladder.transformers.mask(**self.made(function))
        for function in (masks.or_masks(causal, blocks), masks.or_masks(masks.sliding_window_causal_mask_function(1), masks.blockwise_overlay(ids))):
            with self.assertRaisesRegex(NotImplementedError, "gaps within"):  # a block in two parts
                self.check(**self.made(function))

    def test_by_transformers_makers(self):
        config = transformers.LlamaConfig(**SIZES)
        config._attn_implementation = NAME
        embedded, ids = torch.zeros(2, 6, 256), torch.tensor([[0, 0, -1, -1, 1, 1]] * 2)
        whole = {"config": config, "inputs_embeds": embedded, "attention_mask": None, CACHE: None}
        for more in (dict(or_mask_function=lambda *where: where[3] < 3), dict(and_mask_function=lambda *where: where[3] < 3)):
            with self.subTest(**{name: 0 for name in more}), self.assertRaises(NotImplementedError):
                masks.create_causal_mask(**whole, **more)
        taken = masks.create_causal_mask(**whole, and_mask_function=masks.sliding_window_overlay(3))
        self.assertEqual(taken.shape, (2, 4, 2, 0))
        self.assertEqual(masks.create_causal_mask(**whole, block_sequence_ids=ids * 0 - 1).shape, (2, 1, 2, 0))

    def test_what_layers_bring_is_refused(self):
        q = torch.zeros(1, 1, 4, 128).bfloat16()
        for options in ({"dropout": 0.1}, {"position_bias": q}, {"block_table": q}):
            with self.assertRaises(NotImplementedError):
                flash_ladder.transformers.attend(module(True), q, q, q, None, **options)


if __name__ == "__main__":
    unittest.main()
