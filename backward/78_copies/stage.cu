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
  const uint64_t copies = 2 * BR * ROW_CHUNKS + BR / 2;  // of 16 bytes, for a tile: Q, dO; D, LSE
  return {.mma = pairs * 5 * product,                    // S, dP, dV, dK, dQ
          .ldmatrix = pairs * (2 * (load_A + load_B) + 3 * load_B + SLICES),
          .products_under_copies = (tiles - blocks) * copies * 5 * product,
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BR,
          .barriers = tiles * 2,
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)     // deltas and zeros
                           + tiles * BR * HEAD_DIM                          // reductions
                           + rows * HEAD_DIM                                // the sum
                           + 3 * rows * ROW_BYTES / 4,                      // dQ, dK, dV
          .gmem_sectors = side * (copies * 16 + BR * sum_bytes) / 32        // of tiles; reductions
                          + (4 * BR * ROW_BYTES + 2 * BR * sum_bytes) / 32  // O, dO, K, V; zeros, the sum
                          + 3 * BR / 4 + 3 * BR * ROW_BYTES / 16,           // LSE, D; dQ, dK, dV half a sector each
          .gmem_bytes_read =
              rows * (2 * ROW_BYTES + 4) + 2 * blocks * BR * ROW_BYTES + tiles * copies * 16 + rows * sum_bytes,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES),
          .gmem_bytes_reduced = tiles * BR * sum_bytes,
          .unused_smem_bytes = side == 1 ? C::SLOT_BYTES : 0};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 2) * sizeof(float);  // the sum of dQ, D, LSE
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "78_copies",
    .previous = "77_laneorder",
    .role = ladder::Role::branch,
    .idea = "The next tile of queries is copied while this one is worked on: cp.async, a ring of two.",
    .limit = "77_laneorder copies a tile through registers, and nothing is multiplied until it is there.",
    .prediction =
        "Known from a trial, so no prediction: 1.10 times 77 on an H100 at n = 1024 and 1.14 times at n = 4096, dense.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, red.f32, 105 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
