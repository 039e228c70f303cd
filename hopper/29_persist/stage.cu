#include "harness/stages/hopper.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 queries, and tile of BC keys, a pair; shuffles per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Launched& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t q_tiles = shape.batch_heads() * shape.n / BR, kv_tiles = shape.n / BC, tiles = q_tiles * kv_tiles;
  const uint64_t blocks = ladder::min<uint64_t>(q_tiles, shape.multiprocessors);
  const uint64_t rounds = (q_tiles + blocks - 1) / blocks;  // of the first block, which has most to do
  const uint64_t pairs = tiles * WARPS / 4, q_warps = q_tiles * WARPS, warp_tiles = tiles * WARPS;
  const ladder::Walk walk{.tiles = kv_tiles, .stages = C::STAGES, .qk = HEAD_DIM / 16, .pv = BC / 16};
  return {.wgmma = pairs * (HEAD_DIM / 16 + BC / 16),               // QK by slices of d, PV by slices of keys
          .wgmma_left_running = (pairs - q_warps / 4) * (BC / 16),  // PV of each tile but the last, beside a softmax
          .wgmma_beside_exponentials = (pairs - q_warps / 4) * (BC / 16),  // all of them
          .wgmma_under_loads = WARPS / 4 * under_loads(walk, q_tiles, blocks),
          .products_of_busiest_block = rounds * kv_tiles * WARPS / 4 * (HEAD_DIM / 16 + BC / 16),
          .shuffles = q_warps * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums
          .votes = warp_tiles,              // whether anything has to be rescaled
          .votes_on_scores = q_warps,       // in the first tile, and where a warp is careful
          .yes_votes = q_warps,             // in the first tile
          .exponentials = (warp_tiles * BC + q_warps * 4) * 16,  // weights; the corrections of the first tile
          .packs_beside_products = (warp_tiles - q_warps) * 32 * (BC / 4),  // weights, beside the PV before
          .barriers = blocks + q_tiles * WARPS / 4,                         // and one of a warpgroup, named
          .bulk_copies = q_tiles + 2 * tiles + 2 * q_warps,                 // Q; K and V; a warp's O, of two panels
          .gmem_bytes_read = (q_tiles * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = q_tiles * BR * ROW_BYTES,
          .unused_smem_bytes = ((rounds < 2 ? BR : 0) +  // the second Q, and stages
                                2 * BC * (C::STAGES - ladder::min<uint64_t>(C::STAGES, rounds * kv_tiles))) *
                               ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.per_rescale = {.shuffles = 2 * 2, .exponentials = 2 * 32, .corrections_at_rest = 32};
  rest.most_of_data = ladder::hopper::tile_made_twice<C>;
  rest.largest_score = 0x1p14f;  // beyond it a maximum that came by a sum has lost too much
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "29_persist",
    .previous = "28_store",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::rebuilt,
                   "A loop over tiles of queries goes around all that a block did once, with a ring for Q and the "
                   "struct that says what comes next."},
    .idea = "A block stays on its SM and goes on with other queries, which have been copied while it worked on these.",
    .limit =
        "Whenever a block ends, its SM's tensor cores wait until the next one has started and its queries are there.",
    .prediction =
        "+1 % to +3 % at n = 8192: a start takes 2 to 3 microseconds, a block's work 85. More where a head is short.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, mbarrier, 192 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<128, 128, 8, 2>>(), variant<Config<128, 64, 8, 2>>(),
                 variant<Config<128, 64, 8, 4>>({.label = "128x64, 4 stages"})},
});

}  // namespace
