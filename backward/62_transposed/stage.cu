#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// Warp instructions are counted per warp and tile of a walk, a pair. Each of the two walks meets each pair of tiles once.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, WARPS = C::WARPS, SLICES = BR / 16;
  const uint64_t heads = shape.batch_heads(), blocks = heads * shape.n / BR, side = shape.n / BR,
                 tiles = shape.causal ? heads * side * (side + 1) / 2 : heads * side * side, pairs = tiles * WARPS;
  const uint64_t product = (BR / 8) * (HEAD_DIM / 16), load_A = D_SLICES, load_B = SLICES * D_SLICES;
  const uint64_t rows = heads * shape.n;
  return {.mma = pairs * (4 + 3) * product,  // S, dP, dV, dK; S, dP, dQ
          .ldmatrix = pairs * (4 * (load_A + load_B) + 3 * load_B),
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * 2 * BR * BR,
          .barriers = tiles * 2 * 2,
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 1)                           // deltas
                           + (2 * 2 * blocks + 2 * 2 * tiles) * BR * ROW_CHUNKS  // tiles, own and walked over
                           + tiles * 2 * BR + blocks * WARPS * 32 * 2 * 2        // LSE and D
                           + 3 * rows * ROW_BYTES / 4,
          .gmem_bytes_read = rows * 2 * ROW_BYTES + (4 * blocks + 4 * tiles) * BR * ROW_BYTES +
                             (tiles * 2 * BR + blocks * WARPS * 32 * 2 * 2) * 4,
          .gmem_bytes_written = rows * 4 + 3 * rows * ROW_BYTES};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * sizeof(float);  // D
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.conflict_ways = 1.0;
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  return ladder::make_variant<C>(run<C>, key_gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "62_transposed",
    .previous = "61_recomputed",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other,
                   "mma.sync for five products, from a kernel of scalar loops: little of it remains."},
    .idea = "All products by mma.sync. S and dP transposed, keys as rows: a lane holds P^T and dS^T as the next "
            "product wants "
            "them.",
    .limit = "61_recomputed multiplies on the CUDA cores, and each of its loads of a row serves four others.",
    .prediction = "100 to 170 TFLOPS on an H200, dense, six to ten times 61. 02_swizzle, which copies and multiplies "
                  "in turns too, has 237 "
                  "with 16 rows a warp; here seven products are computed and five counted, 5/7 of that is 169, and "
                  "each tile of 64 "
                  "waits for its copies twice as often as one of 128.",
    .min_sm = 80,
    .needs = "mma.m16n8k16, 64.5 KiB of shared memory",
    .resources = {{.sm = 80, .registers = 255, .spill_bytes = 0}, {.sm = 90, .registers = 255, .spill_bytes = 0}},
    .variants = {variant<Config<64, 64, 4>>()},
});

}  // namespace
