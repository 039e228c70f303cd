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
          .wgmma_under_fences = tiles * C::WARPS * 32 * 2 * QUERY_SLICES,   // dV, under dS; dK, under dQ
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .barriers = 2 * blocks + tiles,
          .bulk_copies = (2 + 2 * C::WARPS) * blocks + 5 * tiles,        // K, V; dK, dV; Q, dO, LSE and D; dQ twice
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)  // deltas and zeros
                           + rows * (sum_bytes / 16 + ROW_CHUNKS)        // dQ
                           + turns + blocks + 2 * 2 * tiles,             // numbers, and turns waited for and passed on
          .gmem_bytes_read = rows * (2 * ROW_BYTES + 4) + blocks * 2 * C::K_BYTES + tiles * C::STAGE_BYTES +
                             rows * sum_bytes + 2 * tiles * 4,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES) + turns * 4,
          .gmem_bytes_reduced = tiles * BR * sum_bytes + (blocks + 2 * tiles) * 4};
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
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "72_inorder",
    .previous = "71_longest",
    .role = ladder::Role::branch,
    .more_lines = {ladder::MoreLines::other,
                   "Turns in global memory: who waits, who passes on, and who numbers the blocks."},
    .idea = "Blocks add to dQ in turn, so two runs give the same bits.",
    .limit =
        "In 71_longest a block adds its share of dQ when it has it, and sums of f32 in another order have other last "
        "bits: two runs of the same training step differ.",
    .prediction =
        "0.93 to 0.99 times 71, dense at n = 4096, batch 4; causal 0.92 to 0.98; at n = 1024 0.92 to 0.98, dense and "
        "causal. Counted by a list of 132 SMs: if a turn is handed on in less time than a tile takes, what is left to "
        "wait for is where blocks of one head begin together, 1 % dense and 3 % causal at n = 4096; drawing a number "
        "costs half a microsecond of a block's 40 to 150. If handing on takes longer than a tile, about 2.3 "
        "microseconds, every tile waits, and we miss on the low side.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, red.release, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
