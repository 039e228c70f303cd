#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16;
  const uint64_t heads = shape.batch_heads(), side = shape.n / BC, blocks = heads * side,
                 tiles = BC / BR * heads * (shape.causal ? side * (side + 1) / 2 : side * side), pairs = 2 * tiles;
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4, turns = heads * (shape.n / 32 + 1);
  return {.wgmma = pairs * (2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES),  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),      // dP; dV; dK
          // dV, under dS; the next tile's S and dP, under dQ
          .wgmma_under_fences = C::WARPS * 32 * (tiles * QUERY_SLICES + (tiles - blocks) * 2 * D_SLICES),
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .corrections_at_rest = (tiles - blocks) * C::WARPS * BR / 2,  // S, which begins with -LSE
          .barriers = 2 * blocks + tiles,
          .bulk_copies = (2 + 2 * C::WARPS) * blocks + 5 * tiles,        // K, V; dK, dV; Q, dO, LSE and D; dQ twice
          .storing_threads = blocks * (3 + C::WARPS),                    // dQ, by turns; dK and dV
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)  // deltas and zeros
                           + rows * (sum_bytes / 16 + ROW_CHUNKS)        // dQ
                           + turns + blocks + 2 * 2 * tiles,             // numbers, and turns waited for and passed on
          .gmem_bytes_read = rows * (2 * ROW_BYTES + 4) + blocks * 2 * C::K_BYTES + tiles * C::STAGE_BYTES +
                             rows * sum_bytes + 2 * tiles * 4,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES) + turns * 4,
          .gmem_bytes_reduced = tiles * BR * sum_bytes + (blocks + 2 * tiles) * 4};
}

// dP begins with -D, which may be 0 in all queries of a tile.
template <class C>
ladder::Counts most_of_data(const ladder::Shape& shape) {
  return {.corrections_at_rest = predict<C>(shape).corrections_at_rest};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  const uint64_t turns = shape.n / 32 + 1;
  return uint64_t(shape.batch_heads()) * (shape.n * (HEAD_DIM + 2) + turns) * 4;  // the sum of dQ, LSE and D; turns
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL, .formula = "backward"};
  rest.workspace_bytes = workspace_bytes;
  rest.same_bits = true;
  rest.most_of_data = most_of_data<C>;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "81_relay",
    .previous = "80_sameorder",
    .role = ladder::Role::branch,
    .idea = "Three threads take turns at adding to dQ: one waits for its turn while another's sums are on their way.",
    .limit = "In 80_sameorder one thread adds a half of each tile, waits until the sums are there, and passes the turn "
             "on: longer than "
             "the products of a tile take.",
    .prediction = "1.06 to 1.11 times 80 on an H100, dense, at n = 4096: 0.96 to 1.00 of 75. At n = 16384 1.07 to "
                  "1.10; at n = 1024 1.05 to "
                  "1.20. A thread has one and a half tiles' time for each addition then; what stays is that blocks of "
                  "a head which "
                  "begin together wait for each other once.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
