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
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 1 + sum_bytes / 16)  // deltas and zeros
                           + (2 * blocks + 2 * tiles) * BR * ROW_CHUNKS  // tiles, own and walked over
                           + tiles * (2 * BR + BR * HEAD_DIM)            // LSE, D; reductions
                           + 2 * rows * ROW_BYTES / 4                    // dK, dV
                           + rows * (sum_bytes / 16 + ROW_CHUNKS),       // dQ
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
    .name = "63_onewalk",
    .previous = "62_transposed",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "Two kernels become one. Most of what differs besides are parts that it says from here on."},
    .idea = "One walk over queries: a block keeps dK and dV, and adds its share of dQ to a sum in f32 by reductions.",
    .limit = "62_transposed walks twice and computes S and dP in both walks: seven products where five are enough.",
    .prediction = "1.15 to 1.35 times 62 on an H200, dense. Five products for seven are 1.4 at most, and 180 ldmatrix "
                  "for 256. What comes "
                  "instead: dS through shared memory with a third barrier, and for each tile 8192 reductions, 32 KiB "
                  "that L2 adds up.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, red.f32, 72.5 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
