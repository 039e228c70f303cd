#include "harness/stages/backward.hpp"
#include "kernel.cuh"

namespace {

// Products are counted per warp and tile of queries.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t PRODUCT = C::BR / 8 * (HEAD_DIM / 16), LOAD_B = C::BR / 16 * D_SLICES;
  const ladder::Backward walks(shape, C::BR, C::BR);
  const uint64_t pairs = walks.tiles * C::WARPS;
  constexpr uint64_t SUM_BYTES = HEAD_DIM * 4, ROWS = C::BR;
  const uint64_t of_block = shape.n / C::BR;  // tiles
  return {.mma = pairs * 5 * PRODUCT,         // S, dP, dV, dK, dQ
          .ldmatrix = pairs * (2 * (D_SLICES + LOAD_B) + 3 * LOAD_B + C::BR / 16),
          .gmem_sectors = of_block * ROWS * (2 * ROW_BYTES + 2 * 4 + SUM_BYTES) / 32  // Q, dO, LSE, D; reductions
                          + ROWS * (4 * ROW_BYTES + 2 * SUM_BYTES) / 32               // O, dO, K, V; zeros, the sum
                          + ROWS / 4 + 3 * ROWS * ROW_BYTES / 16,  // D; dQ, dK, dV half a sector each
          .gmem_bytes_reduced = walks.tiles * C::BR * HEAD_DIM * sizeof(float)};
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest = ladder::backward::plain(std::move(rest), ladder::backward::sum_bytes<HEAD_DIM + 1>);
  rest.conflict_ways = 1.0;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "77_laneorder",
    .previous = "63_onewalk",
    .role = ladder::Role::branch,
    .idea = "The sum of dQ lies in global memory in the order in which lanes hold it: a reduction fills whole sectors.",
    .limit = "63_onewalk adds 32 numbers to eight rows at once: eight sectors of 32 bytes, half of each.",
    .prediction =
        "Known from a trial, so no prediction: 1.70 times 63 on an H100 at n = 1024 and 1.87 times at n = 4096, dense.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, red.f32, 72.5 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
