#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, WARPS = C::WARPS;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 16);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * (load_Q + load_K + load_V),
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
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "04_vpair",
    .previous = "03_kvpipe",
    .role = ladder::Role::branch,
    .idea = "One ldmatrix.x4.trans fetches V fragments for two column tiles, where .x2.trans fetched one.",
    .limit = "03_kvpipe issues one ldmatrix per mma in PV, twice as many as QK does for K.",
    .prediction = "0 % to +3 %: V ldmatrix instructions halve but the bytes and wavefronts stay; fewer issue slots and "
                  "fewer addresses.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, cp.async",
    .resources = {{.sm = 80, .registers = 216, .spill_bytes = 0}, {.sm = 90, .registers = 224, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 4>>()},
});

}  // namespace
