#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  // What runs while a tile is on its way: since the block began, or since its stage has been read.
  const uint64_t QK = HEAD_DIM / 16, PV = BC / 16, kv_tiles = shape.n / BC, stages = C::STAGES;
  const uint64_t weights = BC / 2, corrections = 2;  // of a thread and tile
  uint64_t under_copies = 0, exponentials = 0;
  for (uint64_t tile = 0; tile < kv_tiles; ++tile) {
    under_copies += tile < stages ? 2 * tile * (QK + PV) + QK : (2 * stages - 1) * (QK + PV) - QK;
    // K is awaited before a softmax and asked for behind the corrections, V asked for before a softmax and awaited behind one.
    exponentials +=
        tile < stages ? (2 * tile + 1) * (weights + corrections) : 2 * stages * (weights + corrections) - corrections;
  }
  return {
      .wgmma = pairs * (HEAD_DIM / 16 + BC / 16),  // QK by slices of d, PV by slices of keys
      .products_under_copies = blocks * under_copies,
      .exponentials_under_copies = blocks * exponentials,
      .loads_awaited_by_asker = blocks + 2 * tiles,    // all of them
      .shuffles = warp_tiles * 2 * 2 + warps * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
      .votes = warp_tiles,                             // whether anything has to be rescaled
      .yes_votes = warps,                              // in the first tile
      .exponentials = warp_tiles * 16 * (BC + 4),      // weights; a correction in each of a row's four lanes
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
    .name = "21_ring",
    .previous = "20_wgmma",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::retold,
         "K and V each have a struct Ring, and the loop follows two in place of one; all later rungs keep it."},
    .idea = "K and V have rings of stages of their own, and a tile is requested as soon as its stage has been read.",
    .limit = "A tile is requested when the one before it is half done, and then PV alone covers its way.",
    .prediction = "+10 % to +20 %: a tile has a whole tile's time to arrive, where it had less than half of it; no "
                  "warpgroup waits for a copy any more, but for the first.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 160, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
