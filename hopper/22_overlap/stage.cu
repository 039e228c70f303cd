#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  // What runs while a tile is on its way: since the block began, or since its stage has been read. QK comes a tile ahead
  // of PV, but for the last PV.
  const uint64_t QK = HEAD_DIM / 16, PV = BC / 16, kv_tiles = shape.n / BC, stages = C::STAGES;
  const uint64_t of_softmax = BC / 2 + 2;  // exponentials of a thread: weights and corrections
  uint64_t under_copies = 0, exponentials = 0;
  for (uint64_t tile = 0; tile < kv_tiles; ++tile) {
    const uint64_t next_QK = tile + 1 < kv_tiles ? QK : 0;
    under_copies += tile >= stages ? (stages - 2) * (QK + PV) : tile > 0 ? tile * QK + (tile - 1) * PV : 0;  // K
    under_copies += (tile >= stages ? (stages - 2) * (QK + PV) : tile * PV + (tile + 1) * QK) + next_QK;     // V
    exponentials += (tile < stages ? 2 * tile + 1 : 2 * (stages - 1)) * of_softmax;
  }
  return {
      .wgmma = pairs * (HEAD_DIM / 16 + BC / 16),                    // QK by slices of d, PV by slices of keys
      .wgmma_left_running = (pairs - warps / 4) * (BC / 16),         // PV of each tile but the last, beside a softmax
      .wgmma_beside_exponentials = (pairs - warps / 4) * (BC / 16),  // all of them
      .products_under_copies = blocks * under_copies,
      .exponentials_under_copies = blocks * exponentials,
      .loads_awaited_by_asker = blocks + 2 * tiles,    // all of them
      .shuffles = warp_tiles * 2 * 2 + warps * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
      .shuffles_beside_products = (warp_tiles - warps) * 2 * 2,  // but those of the first tile and of the sums
      .votes = warp_tiles,                                       // whether anything has to be rescaled
      .yes_votes = warps,                                        // in the first tile
      .exponentials = warp_tiles * 16 * (BC + 4),                // weights; a correction in each of a row's four lanes
      .barriers = blocks,
      .bulk_copies = blocks + 2 * tiles,  // Q; K and V
      .gmem_accesses = blocks * BR * ROW_BYTES / 4,
      .gmem_sectors = 2 * BR * ROW_BYTES / 32,  // of a block; half used
      .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
      .gmem_bytes_written = blocks * BR * ROW_BYTES,
      .unused_smem_bytes =
          uint64_t(ladder::max<int64_t>(0, C::STAGES - shape.n / C::BC)) * 2 * BC * ROW_BYTES};  // of short heads
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
