#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t load_Q = HEAD_DIM / 16, load_K = (BC / 16) * (HEAD_DIM / 16), load_V = (BC / 16) * (HEAD_DIM / 8);
  return {.mma = pairs * 2 * (BC / 8) * (HEAD_DIM / 16),
          .ldmatrix = pairs * (load_Q + load_K + load_V),
          .shuffles = pairs * 2 * 4,              // two rows, two exchanges for the maximum and two for the sum
          .exponentials = pairs * 16 * (BC + 4),  // weights; a correction in each of a row's four lanes
          .barriers = tiles * 2,
          .gmem_accesses = (blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16 + blocks * BR * ROW_BYTES / 4,
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
    .name = "02_swizzle",
    .previous = "01_base",
    .role = ladder::Role::line,
    .idea =
        "XOR the chunk index with the row, and the eight rows of an ldmatrix fall into eight different bank groups.",
    .limit = "Every ldmatrix of 01_base takes eight wavefronts per matrix, because the eight rows it reads start in "
             "the same bank.",
    .prediction = "4x to 8x: shared-memory wavefronts per ldmatrix fall from 32 to 4; the larger tile halves the loads "
                  "of K and V per key. 200 to 300 TFLOPS on an H200.",
    .min_sm = 80,
    .needs = "mma.m16n8k16",
    .resources = {{.sm = 80, .registers = 240, .spill_bytes = 0}, {.sm = 90, .registers = 240, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 4>>(), variant<Config<64, 32, 2>>()},
});

}  // namespace
