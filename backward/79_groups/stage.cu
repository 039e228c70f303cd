#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t QUERY_SLICES = C::BR / 16;
  const ladder::Backward walks(shape, C::BR, C::BC);
  return {.mma = walks.tiles * 5 * (C::BR / 16) * (C::BC / 8) * (HEAD_DIM / 16),  // S, dP, dV, dK, dQ
          // Of eight warps: scores and a gradient each; dQ.
          .ldmatrix = walks.tiles * 8 * (D_SLICES * (2 + C::BR / 16) + QUERY_SLICES * D_SLICES + C::BC / 16 * (2 + 2)),
          .barriers = walks.tiles * (1 + 8) + walks.blocks,
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 2>);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "79_groups",
    .previous = "78_copies",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "Warps take different products, so each part of the walk is written for one of two teams."},
    .idea = "Four warps have P and dV of the keys, four dS and dK: each operand from shared memory serves twice the "
            "products.",
    .limit = "In 78_copies a warp has 16 keys, and reads all of Q and dO for them, twice: shared memory is 78 % busy.",
    .prediction = "Known from a trial, so no prediction: 1.09 times 78 on an H100 at n = 1024 and 1.11 times at n = "
                  "4096, dense; there 1.13 and 1.08 times FlashAttention-2 in PyTorch.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, red.f32, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8>>()},
});

}  // namespace
