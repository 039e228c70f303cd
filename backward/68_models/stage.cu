#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

// wgmma is counted per warpgroup, 64 keys, and tile of BR queries, a pair.
template <class C>
ladder::Counts predict(const ladder::Shape& spec) {
  constexpr int64_t BR = C::BR, BC = C::BC;
  constexpr uint64_t QUERY_SLICES = BR / 16, KEY_SLICES = BC / 16, EACH = 2 * D_SLICES + 2 * QUERY_SLICES + KEY_SLICES;
  const int64_t n_q = spec.n, n_k = spec.keys(), q_tiles = (n_q + BR - 1) / BR, k_tiles = (n_k + BC - 1) / BC;
  const uint64_t heads = spec.batch_heads(), kv_heads = uint64_t(spec.batch) * spec.key_heads(),
                 blocks = kv_heads * k_tiles;
  uint64_t tiles = 0, copied_rows = 0, most = 0;  // most: tiles of the block that has most
  for (int64_t block = 0; block < k_tiles; ++block) {
    const int64_t first =
        spec.causal ? ladder::min(ladder::max<int64_t>(block * BC + n_q - n_k, 0) / BR, q_tiles - 1) : 0;
    tiles += heads * (q_tiles - first);
    copied_rows += heads * (n_q - first * BR);
    most = ladder::max<uint64_t>(most, heads / kv_heads * (q_tiles - first));
  }
  const uint64_t pairs = 2 * tiles, rows = heads * n_q, padded = heads * q_tiles * BR, sum_bytes = HEAD_DIM * 4;
  // While a tile of queries is on its way, all of the one before may run, and dQ of the one before that.
  return {.wgmma = pairs * EACH,  // S, dP; dV, dK; dQ
          .wgmma_left_running = pairs * (QUERY_SLICES + KEY_SLICES) + (pairs - 2 * blocks) * D_SLICES,  // dV, dQ; S
          .wgmma_under_loads = spec.causal || tiles < 2 * blocks
                                   ? 0
                                   : pairs * (EACH + KEY_SLICES) - 2 * blocks * (EACH + 2 * KEY_SLICES),
          .shuffles = padded / 4 * 3,
          .exponentials = tiles * BR * BC,
          .barriers = blocks + tiles,
          .bulk_copies = 4 * blocks + 7 * tiles,  // panels of K, V; of Q, dO, and LSE and D; dQ twice
          .gmem_accesses = padded * (2 * ROW_CHUNKS + 3 + sum_bytes / 16)        // deltas and zeros
                           + 2 * kv_heads * n_k * ROW_BYTES / 4                  // dK, dV
                           + padded * (sum_bytes / 16) + rows * 2 * ROW_CHUNKS,  // dQ
          .gmem_bytes_read = padded * (2 * ROW_BYTES + 4) + (kv_heads * n_k + copied_rows) * 2 * ROW_BYTES +
                             tiles * C::ROWS_BYTES + padded * sum_bytes + rows * ROW_CHUNKS * 4,
          .gmem_bytes_written = padded * (8 + sum_bytes) + (rows + 2 * kv_heads * n_k) * ROW_BYTES,
          .gmem_bytes_reduced = tiles * BR * sum_bytes,
          .unused_smem_bytes = most == 1 ? C::STAGE_BYTES + C::dS_BYTES : 0};  // a second stage, a second dS
}

template <class C>
uint64_t workspace_bytes(const ladder::Shape& shape) {  // the sum of dQ, LSE and D
  const uint64_t tiles = (shape.n + C::BR - 1) / C::BR;
  return uint64_t(shape.batch_heads()) * tiles * C::BR * (HEAD_DIM + 2) * sizeof(float);
}

template <class C>
ladder::Variant variant(ladder::Variant rest = {}) {
  rest.accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS | ladder::STRIDES | ladder::GROUPED,
                  .q = ladder::Element::bf16,
                  .kv = ladder::Element::bf16,
                  .o = ladder::Element::bf16,
                  .formula = "backward"};
  rest.workspace_bytes = workspace_bytes<C>;
  return ladder::make_variant<C>(run<C>, gradients<C>, predict<C>, std::move(rest));
}

const ladder::Registration registration({
    .name = "68_models",
    .previous = "66_ahead",
    .role = ladder::Role::port,
    .more_lines = {ladder::MoreLines::port,
                   "What 40 to 42 found, for gradients: bf16, any lengths, heads that share keys, strides."},
    .idea =
        "What models ask for: bf16, any lengths of both sides, heads of queries that share keys, rows in any strides.",
    .limit = "66_ahead takes f16, as many keys as queries, a multiple of 128, and all of them in a row.",
    .prediction = "0.97 to 1.00 times 66 where both take the problem but for its type, at n = 4096, dense. The loop "
                  "has one comparison more for "
                  "each tile, and two more copies. With 8 heads of keys for 32 of queries a block has four times as "
                  "long a walk, so that "
                  "its ends weigh a quarter: 1.02 to 1.08 times the same without groups, at n = 1024.",
    .min_sm = 90,
    .max_sm = 90,
    .needs = "wgmma, setmaxnreg, stmatrix, TMA, cp.reduce.async.bulk, mbarrier, 193 KiB of shared memory",
    .resources = {{.sm = 90, .registers = 168, .spill_bytes = 0}},
    .variants = {variant<Config<64, 128, 8, 2>>()},
});

}  // namespace
