#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC;
  const uint64_t rows = shape.batch_heads() * shape.n, blocks = rows / BR, tiles = blocks * (shape.n / BC);
  return {.shuffles = rows / 16 * shape.n * 4 * 3,  // a warp has 16 rows, a lane four of them
          .exponentials = rows * 8 * 2 * shape.n,   // a weight and a correction in each of a row's lanes
          .barriers = blocks + tiles * 2,
          .gmem_accesses = (blocks * BR + tiles * 2 * BC + rows) * ROW_BYTES / 16,
          .gmem_sectors = (2 * BR + 2 * shape.n) * ROW_BYTES / 32,                                // of a block
          .smem_wavefronts = blocks * ((BR + 2 * shape.n) * 2 + C::WARPS * (32 + shape.n * 16)),  // stores; Q; K and V
          .gmem_bytes_read = (blocks * BR + tiles * 2 * BC) * ROW_BYTES,
          .gmem_bytes_written = rows * ROW_BYTES};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  return ladder::make_variant<C>(run<C>, flash_attention<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "p06_regtile",
    .previous = "p05_shared",
    .role = ladder::Role::branch,
    .idea = "Register tiles: a lane has four rows, so each value of K or V that it reads and converts serves four "
            "products.",
    .limit =
        "p05_shared reads and converts a value for each product: of 107 instructions per key, 33 are multiply-adds.",
    .prediction =
        "17 to 21 TFLOPS. A key of 16 rows takes 297 instructions, where p05 takes 4 x 112: the 32 conversions and the "
        "loads are paid once, so at most 25 TFLOPS. What is left beside 132 multiply-adds: 76 multiplications, most of "
        "them corrections of O by 1. But 221 registers let an SM hold 8 warps instead of 24.",
    .min_sm = 75,
    .needs = "48 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 224, .spill_bytes = 0}, {.sm = 90, .registers = 224, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>(), variant<Config<32, 64, 2>>(), variant<Config<64, 32, 4>>()},
});

}  // namespace
