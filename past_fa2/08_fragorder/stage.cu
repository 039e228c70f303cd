#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t warp_tiles = tiles * WARPS;  // K and V are read once per warp, whatever its M_TILES
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * load_Q + warp_tiles * (load_K + load_V),
          .fragments_in_pairs = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          // QK of a tile runs under its V, PV under the next K: as many products, and 16 copies for each key.
          .products_under_copies = (2 * tiles - blocks) * BC * 16 * (BR / WARPS / 16) * BC,
          // V[tile] is on its way under the softmax, K[tile + 1] is not.
          .exponentials_under_copies = tiles * BC * 16 * (BR / WARPS / 16) * (BC / 2 + 2),
          .shuffles = pairs * 2 * 4,              // two rows, two exchanges for the maximum and two for the sum
          .exponentials = pairs * 16 * (BC + 4),  // weights; a correction in each of a row's four lanes
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
    .name = "08_fragorder",
    .previous = "06_batched",
    .role = ladder::Role::line,
    .idea = "Lanes ask for K's matrices in the order in which mma wants them, and no register has to be moved.",
    .limit = "mma cannot use K's registers as ldmatrix leaves them in 06: each B fragment is moved into a pair first.",
    .prediction = "Written after a trial. From the machine code: +5 % to +10 %, for some 250 of 1,850 instructions are "
                  "moves between ldmatrix and mma.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"},
                  {.sm = 90, .registers = 255, .spill_bytes = 8, .reason = "O and S alone are 192 registers"}},
    .variants = {variant<Config<128, 64, 4>>()},
});

}  // namespace
