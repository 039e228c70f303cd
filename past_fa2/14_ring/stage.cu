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
  // And all of the exponentials, but for the corrections of that one.
  const uint64_t weights = BC / 2, corrections = 2;  // of 16 rows, a thread
  uint64_t under_copy = 0, exponentials = 0;         // of a product's size; of 16 rows
  for (uint64_t tile = 0; tile < kv_tiles; ++tile) {
    under_copy += tile < ahead ? 2 * tile : 2 * ahead - 1;
    exponentials += ladder::min(tile, ahead) * (weights + corrections) - (tile < ahead ? 0 : corrections);
  }
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .fragments_in_pairs = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .products_under_copies = blocks * 2 * under_copy * (BR / WARPS / 16) * BC,  // under K and V
          .exponentials_under_copies = blocks * 2 * exponentials * (BR / WARPS / 16),
          .loads_awaited_by_asker = blocks + 2 * tiles,  // all of them
          .arrivals_awaited_at_once = ladder::NONE,      // or all would wait for the slowest
          .shuffles = pairs * 2 * 2 + groups * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
          .votes = warp_tiles,                         // whether anything has to be rescaled
          .yes_votes = blocks * WARPS,                 // in the first tile
          .exponentials = pairs * 16 * (BC + 4),       // weights; a correction in each of a row's four lanes
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
