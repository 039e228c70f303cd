#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  return {
      .wgmma = pairs * (HEAD_DIM / 16 + BC / 16),                    // QK by slices of d, PV by slices of keys
      .products_under_copies = (tiles - blocks) * 2 * (BC / 16),     // PV, under the next K and V
      .exponentials_under_copies = (tiles - blocks) * 2 * (BC / 2),  // and the weights
      .loads_awaited_by_asker = blocks + 2 * tiles,                  // all of them
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
          uint64_t(ladder::max<int64_t>(0, 2 - shape.n / C::BC)) * 2 * BC * ROW_BYTES};  // of short heads
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.corrections_at_rest = 32};
  rest.largest_score = 0x1p24f;  // 05_exp2f says why
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "20_wgmma",
    .previous = "13_tma",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::is_new,
                   "wgmma: descriptors in place of fragments of K and V, and the layouts that these want."},
    .idea = "Four warps multiply together, by instructions that read K and V in shared memory themselves.",
    .limit =
        "Each warp loads K and V into registers, fragment by fragment, and issues thousands of small products itself.",
    .prediction = "+5 % to +10 %: no fragments are loaded any more, and a warp issues one instruction where it issued "
                  "hundreds. But a warpgroup has nothing else to do while its product runs, and a tile arrives under "
                  "PV alone, which is over sooner now.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 160, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8>>(), variant<Config<128, 64, 8>>()},
});

}  // namespace
