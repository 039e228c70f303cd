#include "harness/stages/past_fa2.hpp"
#include "kernel.cuh"

namespace {

// Of the exponentials beside a tile on its way all are of the tiles before it, but for the corrections of the one that asks.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const ladder::past_fa2::Tiles<C> of(shape);
  const uint64_t ahead = C::SLOTS - 1, weights = C::BC / 2, corrections = 2;  // of 16 rows, a thread
  uint64_t exponentials = 0;
  for (uint64_t tile = 0; tile < of.of_block; ++tile)
    exponentials += ladder::min(tile, ahead) * (weights + corrections) - (tile < ahead ? 0 : corrections);
  ladder::Counts counts = ladder::past_fa2::around_a_ring<C>(shape);
  counts.exponentials_under_copies = of.blocks * 2 * exponentials * of.WARP_GROUPS;  // under K and V
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "14_ring",
    .previous = "13_tma",
    .role = ladder::Role::branch,
    .idea = "Three slots for K and V, and the loop unrolled over them: in the code every slot is a constant.",
    .limit = "A tile is requested when all warps have read the one two before: the slowest makes the others wait.",
    .prediction = "+1 %: nobody waits for the slowest warp of the tile before, and addresses and parities need no "
                  "arithmetic. More at short n, where the first tiles are asked for together.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 20, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<256, 64, 8, 3>>(),
                 variant<Config<256, 64, 8, 4>>({.label = "256x64, 8 warps, 4 slots"}),
                 variant<Config<256, 64, 8, 2>>({.label = "256x64, 8 warps, 2 slots"}),
                 variant<Config<128, 64, 4, 2>>()},
});

}  // namespace
