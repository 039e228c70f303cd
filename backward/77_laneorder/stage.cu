#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per warp and tile of the walk, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, WARPS = C::WARPS, SLICES = BR / 16;
  const uint64_t heads = shape.batch_heads(), side = shape.n / BR, blocks = heads * side,
                 tiles = shape.causal ? heads * side * (side + 1) / 2 : heads * side * side, pairs = tiles * WARPS;
  const uint64_t product = (BR / 8) * (HEAD_DIM / 16), load_A = D_SLICES, load_B = SLICES * D_SLICES;
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  return {.mma = pairs * 5 * product,  // S, dP, dV, dK, dQ
          .ldmatrix = pairs * (2 * (load_A + load_B) + 3 * load_B + SLICES),
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BR,
          .barriers = tiles * 3,
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 1 + sum_bytes / 16)                   // deltas and zeros
                           + (2 * blocks + 2 * tiles) * BR * ROW_CHUNKS                   // tiles, own and walked over
                           + tiles * (2 * BR + BR * HEAD_DIM)                             // LSE, D; reductions
                           + rows * HEAD_DIM                                              // the sum
                           + 3 * rows * ROW_BYTES / 4,                                    // dQ, dK, dV
          .gmem_sectors = side * (2 * BR * ROW_BYTES + 2 * BR * 4 + BR * sum_bytes) / 32  // Q, dO, LSE, D; reductions
                          + (4 * BR * ROW_BYTES + 2 * BR * sum_bytes) / 32                // O, dO, K, V; zeros, the sum
                          + BR / 4 + 3 * BR * ROW_BYTES / 16,  // D; dQ, dK, dV half a sector each
          .gmem_bytes_read =
              rows * 2 * ROW_BYTES + (2 * blocks + 2 * tiles) * BR * ROW_BYTES + tiles * 2 * BR * 4 + rows * sum_bytes,
          .gmem_bytes_written = rows * (4 + sum_bytes + 3 * ROW_BYTES),
          .gmem_bytes_reduced = tiles * BR * sum_bytes};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 1) * sizeof(float);  // the sum of dQ, and D
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
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
