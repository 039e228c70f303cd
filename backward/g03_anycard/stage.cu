#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t D_SLICES = C::HEAD_DIM / 16, QUERY_SLICES = C::BR / 16, KEY_SLICES = C::BC / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  return {.mma = walks.tiles * 5 * QUERY_SLICES * (C::BC / 8) * D_SLICES,  // S, dP, dV, dK, dQ
          // Of a warp: scores, two times; dV and dK; dQ.
          .ldmatrix = walks.tiles * C::WARPS *
                      (2 * D_SLICES * (2 + C::S_TILES / 2) + 2 * QUERY_SLICES * (2 + C::COLUMN_TILES / 2) +
                       KEY_SLICES * (2 + C::dQ_TILES / 2)),
          .barriers = walks.tiles * 3 + walks.blocks * 2,
          .gmem_bytes_reduced = walks.tiles * C::BR * C::HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::any_d<typename C::T>(std::move(rest),
                                                ladder::backward::list_and_sum_bytes<C, C::HEAD_DIM + 2, Sequence>,
                                                ladder::WINDOW | ladder::VARLEN, C::HEAD_DIM);
  if (C::HEAD_DIM == 128) rest.accepts.min_d = 72;  // of fewer columns is the variant of 64
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "g03_anycard",
    .previous = "79_groups",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What models ask of gradients, 68 to 82, for mma.sync and cp.async, and in less shared memory."},
    .idea = "Gradients as models ask for them on every card from sm_80 on: within 145 KiB of shared memory, or 97.",
    .limit =
        "79_groups has one length, f16 and no groups of heads, and takes 193 KiB of shared memory; an A100 gives a "
        "block 163, an RTX card 99.",
    .prediction =
        "No card before Hopper is here, so on an H200, before any trial: in turns, bf16, 16 heads, batch 4, n = 4096, "
        "over FlashAttention-2 in PyTorch, 64x128 1.03 dense and 1.09 causal, within 8 %; 97 KiB, of which two blocks "
        "share an SM and wait at other times, 1.10 and 1.18, within 10 %; with 64 columns 1.10 and 1.12, within 12 %. "
        "Over 94_backwards, 97 KiB 0.48 dense and 0.50 causal, within 10 %; over 84_meanwhile, with 64 columns, 0.51 "
        "dense and causal, within 12 %.",
    .min_sm = 80,
    .needs = "mma.m16n8k16 in f16 or bf16, cp.async, red.f32, 97 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<bf16, 128, 64, 128, 8, 1>>(),
                 variant<Config<bf16, 128, 64, 64, 4, 2>>({.label = "97 KiB"}),
                 variant<Config<bf16, 64, 64, 64, 4, 3>>({.label = "d = 64"}),
                 variant<Config<f16, 128, 64, 128, 8, 1>>({.label = "f16"}),
                 variant<Config<f16, 128, 64, 64, 4, 2>>({.label = "f16, 97 KiB"}),
                 variant<Config<f16, 64, 64, 64, 4, 3>>({.label = "f16, d = 64"})},
});

}  // namespace
