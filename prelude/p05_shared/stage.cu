#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t rows = shape.batch_heads() * shape.n, blocks = rows / BR, tiles = blocks * (shape.n / BC);
  return {.shuffles = rows / 4 * shape.n * 3,      // a warp sums the scores of four rows at a time
          .exponentials = rows * 8 * 2 * shape.n,  // a weight and a correction in each of a row's lanes
          .barriers = blocks + tiles * 2,
          .gmem_accesses = (blocks * BR + tiles * 2 * BC + rows) * ROW_BYTES / 16,
          .gmem_sectors = (2 * BR + 2 * shape.n) * ROW_BYTES / 32,                               // of a block
          .smem_wavefronts = blocks * ((BR + 2 * shape.n) * 2 + C::WARPS * (8 + shape.n * 16)),  // stores; Q; K and V
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = rows * ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p05_shared",
    .previous = "p04_ownrow",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::is_new,
                   "Tiles of K and V in shared memory, with the copies and barriers that these need."},
    .idea = "K and V come tile by tile into shared memory: what is read from global memory serves the 16 queries of a "
            "block.",
    .limit = "p04_ownrow has every warp read all of K and V, and leaves to the caches what its warps have in common.",
    .prediction =
        "A 16th of the bytes asked for, and within 5 % of p04, 13 to 15 TFLOPS: the loop has as many instructions, 112 "
        "a key and 1.5 for its share of the copies. What waits for L1 or L2 now waits for shared memory, which is "
        "nearer, and at barriers. The larger block (32x64, 8 warps) halves the bytes again and should change nothing.",
    .min_sm = 75,
    .needs = "36 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 64, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {variant<Config<16, 64, 4>>(), variant<Config<32, 64, 8>>(), variant<Config<16, 32, 4>>()},
});

}  // namespace
