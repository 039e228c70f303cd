#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Shuffles are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks_per_head = shape.n / BR, blocks = shape.batch_heads() * blocks_per_head;
  uint64_t tiles = 0;  // under the mask, block b ends at the tile that holds key (b + 1) * BR - 1
  for (uint64_t b = 0; b < blocks_per_head; ++b) tiles += shape.causal ? ((b + 1) * BR + BC - 1) / BC : shape.n / BC;
  tiles *= shape.batch_heads();
  const uint64_t pairs = tiles * (BR / 16);
  return {.shuffles = pairs * 4 * 6,  // four rows per lane, three exchanges for the maximum and three for the sum
          .exponentials = pairs * 16 * (BC + 8),  // weights; a correction in each of a row's eight lanes
          .barriers = tiles * 2,
          .gmem_accesses = (2 * blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16,
          .gmem_sectors = shape.causal ? 0 : (2 * BR + 2 * shape.n) * ROW_BYTES / 32,  // of a block
          // stores of Q; of K and V; QK, P on its way out, PV
          .smem_wavefronts = blocks * BR * 2 + tiles * (BC * 4 + C::WARPS * (256 + 8 * BC + BC / 2 + 12 * BC)),
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES,
          // a load of weights: two groups of rows at a time in the same bank, twice
          .conflicts = pairs * BC * 2};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL};
  rest.largest_score = 0x1p14f;  // a key's sum has its lane's order, and rounds as no other's: p11_lse
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p10_causal",
    .previous = "p07_tiled",
    .role = ladder::Role::branch,
    .idea = "Causal: tiles of the future are skipped, and the tile on the diagonal is masked.",
    .limit = "p07_tiled computes the scores of keys that a causal query may not see.",
    .prediction =
        "Causal at N = 8192: a block visits 64.5 of 128 tiles on average, so 1.98x less time than dense and, with half "
        "the FLOPs counted, as many TFLOPS. Dense: a compare per score that is never needed, below 2 %.",
    .min_sm = 75,
    .needs = "64 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 168, .spill_bytes = 0}, {.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>(), variant<Config<32, 64, 2>>(), variant<Config<64, 32, 4>>()},
});

}  // namespace
