#include "harness/stage.hpp"
#include "harness/walk.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Launched& shape) {
  constexpr uint64_t BR = C::BR, BC = C::BC, QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16,
                     EACH = 2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES;
  const uint64_t heads = shape.batch_heads(), side = shape.n / BC, blocks = heads * side,
                 tiles = BC / BR * heads * (shape.causal ? side * (side + 1) / 2 : side * side), pairs = 2 * tiles;
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  // Under a mask the heads whose longest walks begin together, then those of the next heads.
  uint64_t together = 1;
  while (shape.causal && heads % (2 * together) == 0 && 2 * together * shape.n * HEAD_DIM * 8 <= TOGETHER_BYTES)
    together *= 2;
  ladder::BusiestSm sm(shape.multiprocessors);
  for (uint64_t group = 0; group < heads / together; ++group) {
    for (uint64_t key_tile = 0; key_tile < side; ++key_tile) {
      for (uint64_t head = 0; head < together; ++head)
        sm.block(2 * (shape.causal ? side - key_tile : side) * BC / BR * EACH);
    }
  }
  // While a tile of queries is on its way, all of the one before may run.
  return {.wgmma = pairs * EACH,                                        // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (D_SLICES + 2 * QUERY_SLICES),  // dP; dV; dK
          .wgmma_under_loads = (pairs - 2 * blocks) * EACH,
          .wgmma_under_fences = tiles * C::WARPS * 32 * 2 * QUERY_SLICES,  // dV, under dS; dK, under dQ
          .products_of_busiest_block = 2 * side * BC / BR * EACH,
          .products_of_busiest_sm = sm.most,
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .barriers = 2 * blocks + tiles,
          .bulk_copies = (2 + 2 * C::WARPS) * blocks + 5 * tiles,        // K, V; dK, dV; Q, dO, LSE and D; dQ twice
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)  // deltas and zeros
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
    .name = "71_longest",
    .previous = "70_store",
    .role = ladder::Role::branch,
    .idea = "Under a mask the longest walks begin first, those of several heads at a time.",
    .limit =
        "In 70_store the blocks of a head come in a row, so the last heads' longest blocks begin when most SMs have "
        "little left to do.",
    .prediction =
        "1.03 to 1.06 times 70, causal at n = 4096, batch 4. Counted by a list of 132 SMs, of which the one with "
        "least to do takes the next block: by heads the last SM ends after 580 tiles' time, with eight heads' blocks "
        "by length after 544, and 543 is the mean. The kernels before and behind, a tenth of the time, stay. At n = "
        "1024 1.02 to 1.05; dense no change.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
