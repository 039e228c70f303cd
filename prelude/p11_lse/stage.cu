#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Shuffles are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  return {.shuffles = pairs * 4 * 6,  // four rows per lane, three exchanges for the maximum and three for the sum
          .exponentials = pairs * 16 * (BC + 8),  // weights; a correction in each of a row's eight lanes
          .barriers = tiles * 2,
          .gmem_accesses = (2 * blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16 + blocks * BR,
          .gmem_sectors = (2 * BR + 2 * shape.n) * ROW_BYTES / 32 + BR / 2,  // of a block
          // stores of Q; of K and V; QK, P on its way out, PV
          .smem_wavefronts = blocks * BR * 2 + tiles * (BC * 4 + C::WARPS * (256 + 8 * BC + BC / 2 + 12 * BC)),
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * (ROW_BYTES + 4),
          // a load of weights, and one of Q: two groups of rows at a time in the same bank, twice
          .conflicts = pairs * (BC * 2 + 128)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.writes_lse = true;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p11_lse",
    .previous = "p07_tiled",
    .role = ladder::Role::branch,
    .idea = "Beside O, the logarithm of each row's sum of weights: one float in which the whole softmax of a row can "
            "be found again.",
    .limit = "p07_tiled knows each row's maximum and sum at its end, and lets go of both.",
    .prediction = "As fast as p07, 0.99 to 1.01 times: a logarithm and a store for each row, once, after 8192 keys.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>(), variant<Config<32, 64, 2>>(), variant<Config<64, 32, 4>>()},
});

}  // namespace
