#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t groups = shape.batch_heads() * shape.n / 16, pairs = groups * (shape.n / BC);
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC);
  const uint64_t warp_tiles = tiles * WARPS;  // K and V are read once per warp, whatever its M_TILES
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  // What runs while a tile is on its way: all of the tiles before it, but for the first product of the one that asks.
  const uint64_t kv_tiles = shape.n / BC, ahead = C::SLOTS - 1;
  uint64_t under_copy = 0;  // of a product's size
  for (uint64_t tile = 0; tile < kv_tiles; ++tile) under_copy += tile < ahead ? 2 * tile : 2 * ahead - 1;
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .fragments_in_pairs = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .products_under_copies = blocks * 2 * under_copy * (BR / WARPS / 16) * BC,  // under K and V
          .loads_awaited_by_asker = blocks + 2 * tiles,                               // all of them
          .arrivals_awaited_at_once = ladder::NONE,  // or all would wait for the slowest
          .shuffles = groups * 2 * 2 * 2,  // two rows, two exchanges: the maxima of the first tile, the sums at the end
          .votes = warp_tiles,             // whether anything has to be rescaled
          .yes_votes = blocks * WARPS,     // in the first tile
          .exponentials = (pairs * BC + groups * 4) * 16,         // weights; the corrections of the first tile
          .integer_maxima = pairs * 32 * 2 * (BC / 8),            // all scores, two at a time
          .products_after_exponentials = warp_tiles * (BC / 16),  // a slice of PV behind its weights
          .barriers = blocks,
          .bulk_copies = blocks + 2 * tiles,  // Q; K and V
          .gmem_accesses = blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = 2 * BR * ROW_BYTES / 32,  // of a block; half used
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  constexpr uint64_t ROWS = C::BR / (16 * C::WARPS) * 2;  // of a lane
  rest.per_rescale = {.shuffles = ROWS * 2, .exponentials = ROWS * 32};
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "15_relative",
    .previous = "14_ring",
    .role = ladder::Role::branch,
    .idea = "The products begin at minus the old maximum, so scores come out relative to it; one comparison tells "
            "whether one has outgrown it.",
    .limit = "Between the products each warp finds and exchanges the maxima of its rows, though hardly ever is one of "
             "them new.",
    .prediction =
        "+5 %: 64 maxima of two, 16 exchanges and the corrections between the two products become 32 maxima of three "
        "and a vote. Where large scores keep coming, nothing: then all of 14 is done, and the look as well.",
    .min_sm = 90,
    .needs = "mma.m16n8k16, TMA, mbarrier, 160 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<256, 64, 8, 3>>(), variant<Config<128, 64, 4, 2>>()},
});

}  // namespace
