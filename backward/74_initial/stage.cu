#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  const uint64_t heads = shape.batch_heads(), side = shape.n / BC, blocks = heads * side,
                 tiles = BC / BR * heads * (shape.causal ? side * (side + 1) / 2 : side * side), pairs = 2 * tiles;
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
          .wgmma_under_fences = tiles * C::WARPS * 32 * 2 * QUERY_SLICES,   // dV, under dS; dK, under dQ
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .corrections_at_rest = (tiles - blocks) * C::WARPS * BR / 2,  // S, which begins with -LSE
          .barriers = 2 * blocks + tiles,
          .bulk_copies = (2 + 2 * C::WARPS) * blocks + 5 * tiles,        // K, V; dK, dV; Q, dO, LSE and D; dQ twice
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)  // deltas and zeros
                           + rows * (sum_bytes / 16 + ROW_CHUNKS),       // dQ
          .gmem_bytes_read =
              rows * (2 * ROW_BYTES + 4) + blocks * 2 * C::K_BYTES + tiles * C::STAGE_BYTES + rows * sum_bytes,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES),
          .gmem_bytes_reduced = tiles * BR * sum_bytes};
}

// dP begins with -D, which may be 0 in all queries of a tile.
template <class C>
ladder::Counts most_of_data(const ladder::Shape& shape) {
  return {.corrections_at_rest = predict<C>(shape).corrections_at_rest};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (HEAD_DIM + 2) * sizeof(float);  // the sum of dQ, LSE and D
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "74_initial",
    .previous = "71_longest",
    .role = ladder::Role::branch,
    .more_lines =
        {ladder::MoreLines::other,
         "Sums that begin with -LSE and -D are kept in another order, by who makes them and who copies them."},
    .idea = "S and dP begin with what is subtracted from them, -LSE and -D, instead of with zeros.",
    .limit = "In 71_longest a lane loads LSE when S is there, and D when dP is there, and waits for each: a sixth of "
             "its time, by samples of where warps stood.",
    .prediction = "Known from a trial, so no prediction: 1.03 times 71 at n = 4096, 1.01 to 1.02 under a mask, by "
                  "operations per clock, on an H100.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
