#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16,
                     EACH = 2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES;
  const uint64_t heads = shape.batch_heads(), side = shape.n / BC, blocks = heads * side,
                 tiles = BC / BR * heads * (shape.causal ? side * (side + 1) / 2 : side * side), pairs = 2 * tiles;
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  // While a tile of queries is on its way, all of the one before may run.
  return {.wgmma = pairs * EACH,                                        // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),  // dP; dV; dK
          .wgmma_under_loads = (pairs - 2 * blocks) * EACH,
          .wgmma_under_fences = tiles * C::WARPS * 32 * 2 * QUERY_SLICES,  // dV, under dS; dK, under dQ
          .products_of_busiest_block = 2 * side * BC / BR * EACH,
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .barriers = blocks + tiles,
          .bulk_copies = 2 * blocks + 5 * tiles,                         // K, V; Q, dO, LSE and D; dQ twice
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)  // deltas and zeros
                           + 2 * rows * ROW_BYTES / 4                    // dK, dV
                           + rows * (sum_bytes / 16 + ROW_CHUNKS),       // dQ
          .gmem_bytes_read =
              rows * (2 * ROW_BYTES + 4) + blocks * 2 * C::K_BYTES + tiles * C::STAGE_BYTES + rows * sum_bytes,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES),
          .gmem_bytes_reduced = tiles * BR * sum_bytes};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 2) * sizeof(float);  // the sum of dQ, LSE and D
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "69_behind",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other, "Besides its idea, parts that it says and 65 spells out."},
    .idea = "dK behind dQ instead of before it, so that a product runs while dQ leaves.",
    .limit = "In 65_bulkreduce dQ is the last product of a tile, and nothing multiplies while both warpgroups bring it "
             "away.",
    .prediction = "Known from a trial, so no prediction: 1.03 to 1.05 times 65, at all lengths and under a mask.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
