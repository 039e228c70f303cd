#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per 16-row group of queries and tile of BC keys, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t blocks = shape.batch_heads() * shape.n / BR, tiles = blocks * (shape.n / BC),
                 pairs = tiles * (BR / 16);
  const uint64_t products = (BC / 16) * (HEAD_DIM / 16);    // 16x16x16, of QK and of PV
  const uint64_t load_Q = HEAD_DIM / 16, load_P = BC / 16;  // K and V: one for each product
  return {.mma = pairs * 2 * products * 2,                  // a wmma.mma is two mma.m16n8k16
          .ldmatrix = pairs * (load_Q + load_P + 2 * products),
          .shuffles = pairs * 4 * 6,  // four rows per lane, three exchanges for the maximum and three for the sum
          .exponentials = pairs * 16 * (BC + 8),  // weights; a correction in each of a row's eight lanes
          .barriers = tiles * 2,
          .gmem_accesses = (blocks * BR + tiles * 2 * BC) * ROW_BYTES / 16 + blocks * BR * ROW_BYTES / 4,
          .gmem_sectors = (BR + 2 * shape.n + 2 * BR) * ROW_BYTES / 32,  // of a block; O's are half used
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = blocks * BR * ROW_BYTES,
          .conflicts = pairs * ((load_Q + 2 * products) * 4 * 7 + (BC / 8) * 2 +
                                load_P * 4),  // 8-way; of P 2-way, stores and loads
          .unused_smem_bytes = BR * 2 * PAD_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 8.0;
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p08_wmma",
    .previous = "p07_tiled",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::is_new,
                   "WMMA: both products, and the way of S, P and P V through shared memory."},
    .idea = "Both products on tensor cores through WMMA; its fragments are opaque, so S, P and P V go through shared "
            "memory.",
    .limit = "p07_tiled multiplies on the FP32 units, one product per lane and instruction.",
    .prediction =
        "1.3 to 2 times p10: the tensor cores wait for shared memory, which makes one pass per 174 FLOP, most of them "
        "for 8-way conflicts. At one pass per SM and clock that is at most 45 TFLOPS on an H200; 30 to 42.",
    .min_sm = 75,
    .needs = "WMMA",
    .resources = {{.sm = 80, .registers = 136, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<Config<64, 32, 4>>(), variant<Config<32, 64, 2>>()},
});

}  // namespace
