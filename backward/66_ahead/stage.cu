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
  // While a tile of queries is on its way, all of those before that lie beside it may run, and dQ of the one before them.
  uint64_t under_loads = 0;
  for (uint64_t block = 0; block < side; ++block) {
    const uint64_t walk = BC / BR * (shape.causal ? block + 1 : side), stages = ladder::min<uint64_t>(C::STAGES, walk);
    under_loads += walk * ((stages - 1) * EACH + KEY_SLICES) - stages * (stages - 1) / 2 * EACH - stages * KEY_SLICES;
  }
  return {.wgmma = pairs * EACH,  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (QUERY_SLICES + KEY_SLICES) + (pairs - 2 * blocks) * D_SLICES,  // dV, dQ; S
          .wgmma_under_loads = 2 * heads * under_loads,
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
          .gmem_bytes_reduced = tiles * BR * sum_bytes,
          .unused_smem_bytes =
              uint64_t(ladder::max<int64_t>(0, C::STAGES - shape.n / C::BR)) * C::STAGE_BYTES};  // of short heads
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
    .name = "66_ahead",
    .previous = "65_bulkreduce",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other, "Besides its idea, parts that it says and 65 spells out."},
    .idea = "The next tile's S is started behind dQ, before anybody waits for dQ.",
    .limit = "In 65_bulkreduce both warpgroups bring dQ away at the same time, and nothing multiplies meanwhile.",
    .prediction = "1.02 to 1.07 times 65, dense at n = 4096. Between dQ and the next S both warpgroups store dQ at the "
                  "same time, about 200 "
                  "clocks of 2800, and those the tensor cores win back.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>(), variant<Config<64, 128, 8, 3>>({.label = "3 stages"})},
});

}  // namespace
