#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// What runs while a tile is on its way: since the block began, or since its stage has been read. QK comes a tile ahead of
// PV, but for the last PV.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t QK = HEAD_DIM / 16, PV = C::BC / 16, kv_tiles = shape.n / C::BC, stages = C::STAGES;
  const uint64_t of_softmax = C::BC / 2 + 2;  // exponentials of a thread: weights and corrections
  uint64_t under_copies = 0, exponentials = 0;
  for (uint64_t tile = 0; tile < kv_tiles; ++tile) {
    const uint64_t next_QK = tile + 1 < kv_tiles ? QK : 0;
    under_copies += tile >= stages ? (stages - 2) * (QK + PV) : tile > 0 ? tile * QK + (tile - 1) * PV : 0;  // K
    under_copies += (tile >= stages ? (stages - 2) * (QK + PV) : tile * PV + (tile + 1) * QK) + next_QK;     // V
    exponentials += (tile < stages ? 2 * tile + 1 : 2 * (stages - 1)) * of_softmax;
  }
  ladder::Counts counts = ladder::hopper::with_maxima<C>(shape);
  counts.products_under_copies = counts.barriers * under_copies;  // a barrier is a block's
  counts.exponentials_under_copies = counts.barriers * exponentials;
  counts.wgmma_under_loads = 0;                        // the warps copy for themselves,
  counts.loads_awaited_by_asker = counts.bulk_copies;  // and wait for all that they ask for
  return counts;
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.corrections_at_rest = 32};
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "22_overlap",
    .previous = "21_ring",
    .role = ladder::Role::line,
    .idea = "A warpgroup takes the exponentials of one tile while PV of the tile before runs.",
    .limit = "A warpgroup waits for each of its products, and the tensor cores wait for its softmax.",
    .prediction = "+5 % to +10 %: QK of a tile and PV of the one before are asked for together, and the softmax runs "
                  "under PV. Two warpgroups cover one another in part already, so that not all of the softmax is won.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 200, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
