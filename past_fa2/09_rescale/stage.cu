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
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .fragments_in_pairs = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          // QK of a tile runs under its V, PV under the next K: as many products, and 16 copies for each key.
          .products_under_copies = (2 * tiles - blocks) * BC * 16 * (BR / WARPS / 16) * BC,
          // V under the corrections, the next K under the weights.
          .exponentials_under_copies = (tiles * 2 + (tiles - blocks) * (BC / 2)) * BC * 16 * (BR / WARPS / 16),
          .shuffles = pairs * 2 * 2 + groups * 2 * 2,  // two rows, two exchanges: a maximum per tile, a sum at the end
          .votes = warp_tiles,                         // whether anything has to be rescaled
          .yes_votes = blocks * WARPS,                 // in the first tile
          .exponentials = pairs * 16 * (BC + 4),       // weights; a correction in each of a row's four lanes
          .products_after_exponentials = warp_tiles * (BC / 16),  // a slice of PV behind its weights
          .barriers = tiles * 2,
          .gmem_accesses = blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = (BR + 2 * shape.n + 2 * BR) * ROW_BYTES / 32,  // of a block; O's are half used
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
    .name = "09_rescale",
    .previous = "08_fragorder",
    .role = ladder::Role::line,
    .idea = "O is rescaled only when a maximum has grown by a factor of 2^8, and the weights are made just before PV.",
    .limit = "08 multiplies all 128 accumulators of a lane by a correction that is 1 in nearly every tile, before PV "
             "may begin.",
    .prediction = "Written after trials of its two halves, which alone were worth 0 % and -4 %. Together +5 % to +8 %: "
                  "the branch ends the softmax, and what follows it is weights and products only, which ptxas can mix.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 16, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<128, 64, 4>>()},
});

}  // namespace
