#include "harness/stages/models.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Launched& spec) {
  constexpr uint64_t D = C::HEAD_DIM, M_TILES = C::BR / 16 / C::WARPS;
  const ladder::Forward walks(spec, C::BR, C::BC, 1, false, 0);
  const uint64_t tiles = walks.tiles * C::WARPS;                      // of warps
  return {.mma = tiles * 2 * M_TILES * (C::BC / 8) * (D / 16),        // QK, and PV as many
          .ldmatrix = tiles * (M_TILES + 2 * C::BC / 16) * (D / 16),  // K and V are read once per warp
          .votes = tiles,                                             // whether anything has to be rescaled
          .barriers = walks.tiles * 2};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::models::variant<typename C::Element>(
      std::move(rest),
      ladder::MODELS | ladder::WINDOW | ladder::VARLEN | ladder::SOFTCAP | ladder::ALIBI | ladder::SINK, C::HEAD_DIM);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, flash_attention<C, Score<false, false>>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "50_anycard",
    .previous = "48_scores",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What 40 to 48 found, for mma.sync and cp.async: told anew, from 09 and not from a text for wgmma."},
    .idea = "All that models ask for, of one kernel with mma.sync and cp.async alone, for every GPU from sm_80 on.",
    .limit = "48 needs a Hopper card: wgmma, clusters, a copy engine. 09, of past_fa2, runs on every one since the "
             "A100, and solves a problem that no model has.",
    .prediction = "In turns, over FlashAttention-2 in PyTorch, in bf16, 4 x 16 heads, n = 4096: 1.14 dense and 1.22 "
                  "causal, within 4 %. Dense it is 09, which is 1.15 times FlashAttention-2 in f16, with 11's "
                  "addresses for it and strides, lengths and a test for masks against it; causal the longest blocks "
                  "start first, and FlashAttention-2's do not. A window of 1024 at n = 32768 has 0.85 of the causal "
                  "rate at n = 16384: of the 18 tiles that a block walks through, 16 are what it asked for. Ten "
                  "sequences of 37 to 8192 tokens have 0.93 of the dense rate at n = 4096.",
    .min_sm = 80,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, 64 KiB of shared memory",
    .resources = {{.sm = 80,
                   .registers = 255,
                   .spill_bytes = 32,
                   .reason = "O and S alone are 192 registers; 16 B are where huge rows begin"},
                  {.sm = 90, .registers = 255, .spill_bytes = 32, .reason = "as above; most with a softcap or slopes"}},
    .variants = {variant<Config<bf16, 128, 128, 64, 4>>(), variant<Config<bf16, 64, 128, 64, 4>>({.label = "d = 64"}),
                 variant<Config<bf16, 256, 64, 64, 4>>({.label = "d = 256"}),
                 variant<Config<f16, 128, 128, 64, 4>>({.label = "f16"}),
                 variant<Config<f16, 64, 128, 64, 4>>({.label = "f16, d = 64"}),
                 variant<Config<f16, 256, 64, 64, 4>>({.label = "f16, d = 256"})},
});

}  // namespace
