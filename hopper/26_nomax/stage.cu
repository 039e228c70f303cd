#include "harness/stages/stage.hpp"
#include "harness/stages/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t pairs = tiles * WARPS / 4, warps = blocks * WARPS, warp_tiles = tiles * WARPS;
  const ladder::Walk walk{.tiles = uint64_t(shape.n / BC), .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16};
  return {.wgmma = pairs * (HEAD_DIM / 16 + BC / 16),             // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - warps / 4) * (BC / 16),  // PV of each tile but the last, beside a softmax
          .wgmma_beside_exponentials = (pairs - warps / 4) * (BC / 16),  // all of them
          .wgmma_under_loads = WARPS / 4 * under_loads(walk, blocks, blocks),
          .shuffles = warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = warp_tiles,            // whether anything has to be rescaled
          .yes_votes = warps,             // in the first tile
          .exponentials = (warp_tiles * BC + warps * 4) * 16,             // weights; the corrections of the first tile
          .packs_beside_products = (warp_tiles - warps) * 32 * (BC / 4),  // weights, beside the PV before
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
  rest.per_rescale = {// and the tile's weights are made again
                      .shuffles = 2 * 2,
                      .exponentials = 2 * 32 + 16 * C::BC,
                      .corrections_at_rest = 32};
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "26_nomax",
    .previous = "25_twice",
    .role = ladder::Role::line,
    .idea = "Weights are made against the old maximum, unseen; their sum tells if it was too low, and the tile is done "
            "again.",
    .limit = "Each lane looks for the largest of its scores in every tile before it may take the first exponential.",
    .prediction = "+5 % to +7 %: a maximum for every two scores is a quarter of what the softmax issues, and it "
                  "stands before all the rest. Where scores keep growing it loses: such a tile costs its exponentials"
                  " twice.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
