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
  // While a tile of queries is on its way, all of the one before may run, and dQ of the one before that.
  return {.wgmma = pairs * EACH,                                                 // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + QUERY_SLICES + KEY_SLICES),  // dP; dV; dQ
          .wgmma_under_loads = pairs * (EACH + KEY_SLICES) - 2 * blocks * (EACH + 2 * KEY_SLICES),
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
    .name = "65_bulkreduce",
    .previous = "64_warpgroups",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::other, "Besides its idea, parts that it says and 64 spells out."},
    .idea = "dQ goes through shared memory in the order of the registers, and a warp has the copy engine add it to the "
            "sum, 16 KiB at a time.",
    .limit = "Each lane of 64_warpgroups adds its 32 elements of dQ by itself, by instructions that touch eight half "
             "sectors.",
    .prediction = "1.2 to 1.5 times 64, dense at n = 4096. 256 instructions of a tile, of eight clocks each in a path "
                  "that the warpgroups "
                  "share, become 64 stores of 16 bytes a lane and two requests, and nobody who multiplies waits for "
                  "the sums. At n = 1024 "
                  "1.1 to 1.4: there a fifth of the time goes into the kernels before and behind.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
