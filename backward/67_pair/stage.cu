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
  const uint64_t clusters = heads * ((side + 1) / 2);
  uint64_t copied = 0;  // of tiles, by blocks; those that a block does not compute with it passes by
  for (uint64_t first = 0; first < side; first += C::BLOCKS)
    copied += C::BLOCKS * heads * BC / BR * (shape.causal ? side - first : side);
  const uint64_t rows = heads * shape.n, sum_bytes = HEAD_DIM * 4;
  // While a tile of queries is on its way, all of the one before may run, and dQ of the one before that.
  return {.wgmma = pairs * EACH,  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (QUERY_SLICES + KEY_SLICES) + (pairs - 2 * blocks) * D_SLICES,  // dV, dQ; S
          .wgmma_under_loads =
              shape.causal || side % 2 == 1 ? 0 : pairs * (EACH + KEY_SLICES) - 2 * blocks * (EACH + 2 * KEY_SLICES),
          .shuffles = rows / 4 * 3,
          .exponentials = tiles * BR * BC,
          .barriers = 2 * C::BLOCKS * clusters + tiles + 2 * (copied - tiles),
          .bulk_copies = 2 * C::BLOCKS * clusters + 3 * copied + 2 * tiles,  // K, V; Q, dO, LSE and D; dQ twice
          .gmem_accesses = rows * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)      // deltas and zeros
                           + 2 * rows * ROW_BYTES / 4                        // dK, dV
                           + rows * (sum_bytes / 16 + ROW_CHUNKS),           // dQ
          .gmem_bytes_read = rows * (2 * ROW_BYTES + 4) + blocks * 2 * C::K_BYTES +
                             copied * (C::Q_BYTES + C::ROWS_BYTES) + rows * sum_bytes,
          .gmem_bytes_written = rows * (8 + sum_bytes + 3 * ROW_BYTES),
          .gmem_bytes_reduced = tiles * BR * sum_bytes,
          .multicast_bytes = copied * C::BLOCKS * C::Q_BYTES,
          .idle_blocks = C::BLOCKS * clusters - blocks};
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
    .name = "67_pair",
    .previous = "66_ahead",
    .role = ladder::Role::lost,
    .more_lines = {ladder::MoreLines::other, "Clusters: copies into both blocks, and barriers that count two."},
    .idea = "Two blocks with neighbouring keys walk over the same queries, and each brings half of a tile to both.",
    .limit = "Every block of 66_ahead copies all queries for itself, beside the dQ that goes back to the same L2.",
    .prediction =
        "1.01 to 1.06 times 66, dense at n = 4096. A tile takes 16 KiB from L2 for each block in place of 32, and 32 "
        "KiB go there "
        "as before. In hopper/30_cluster the same brought 4 to 5 %, most of it by power. Causal at n = 1024 it loses: "
        "the second block of a pair passes two tiles of 16, 12, 8 or 4.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, clusters, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
