#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

constexpr uint64_t up(uint64_t count, uint64_t step) {
  return (count + step - 1) / step;
}

template <class C>
ladder::Counts predict(const ladder::Shape& shape) {
  constexpr uint64_t ROWS = C::ROWS, CHUNKS = HEAD_DIM / 8;  // of a row, 16 bytes each
  const int64_t n_q = shape.n, n_k = shape.keys();
  const auto seen_by = [&](int64_t query) {
    return shape.causal ? uint64_t(ladder::min(ladder::max<int64_t>(query + 1 + n_k - n_q, 0), n_k)) : uint64_t(n_k);
  };
  const auto seeing = [&](int64_t key) { return shape.causal ? uint64_t(ladder::min(n_q, n_k - key)) : uint64_t(n_q); };
  // Of a head: steps of blocks, each of a row for all groups, and weights. Groups past the last row repeat it.
  const uint64_t query_blocks = up(n_q, ROWS), key_blocks = up(n_k, ROWS);
  uint64_t over_queries = 0, over_keys = 0, key_weights = 0, query_weights = 0;
  for (uint64_t block = 0; block < key_blocks; ++block) {
    over_queries += seeing(block * ROWS);
    for (uint64_t row = 0; row < ROWS; ++row) key_weights += seeing(ladder::min<int64_t>(block * ROWS + row, n_k - 1));
  }
  for (uint64_t block = 0; block < query_blocks; ++block) {
    over_keys += seen_by(ladder::min<int64_t>(block * ROWS + ROWS, n_q) - 1);
    for (uint64_t row = 0; row < ROWS; ++row)
      query_weights += seen_by(ladder::min<int64_t>(block * ROWS + row, n_q - 1));
  }
  const uint64_t heads = shape.batch_heads(),
                 rows_loaded = 2 * (over_queries + over_keys + 2 * query_blocks + key_blocks) * ROWS;
  // LSE and D.
  const uint64_t numbers = (2 * key_weights + 2 * query_blocks * ROWS) * 8;  // of LSE and D
  return {.shuffles = heads * C::WARPS * 3 * (query_blocks + 2 * (over_queries + over_keys)),
          .exponentials = heads * (key_weights + query_weights) * 8,
          .gmem_accesses = heads * (rows_loaded * CHUNKS + numbers + n_q + (n_q + 2 * n_k) * CHUNKS),
          .gmem_bytes_read = heads * (rows_loaded * HEAD_DIM * 2 + numbers * 4),
          .gmem_bytes_written = heads * (n_q * 4 + (n_q + 2 * n_k) * HEAD_DIM * 2)};
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * sizeof(float);  // D
}

template <class C>
ladder::Variant variant(ladder::Label label) {
  return ladder::make_variant(
      {.warps = C::WARPS}, 0, run<C>, reinterpret_cast<const void*>(key_gradients<C>), predict<C>,
      {.label = label,
       .config = ladder::type_name<C>(),
       .accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS, .formula = "backward"},
       .workspace_bytes = workspace_bytes});
}

const ladder::Registration registration({
    .name = "61_recomputed",
    .previous = "60_stored",
    .role = ladder::Role::line,
    .more_lines =
        {ladder::MoreLines::other,
         "Nothing of n x n in memory: five kernels become two walks, which have few lines in common with them."},
    .idea = "The weights again from LSE, and nothing of n x n in memory: one walk over queries for dK and dV, one over "
            "keys "
            "for dQ.",
    .limit = "60_stored keeps P and dS: 8 n^2 bytes a head. At batch 16, heads 16, n = 8192 that is 128 GiB.",
    .prediction = "15 to 20 TFLOPS on an H200, seven products where 60 has five: a lane has 16 columns of a row in "
                  "registers, as in "
                  "p04_ownrow, which has 16.1. Two loops of about 120 and 100 instructions take four pairs of 1280 "
                  "operations: 23 "
                  "operations an instruction where p04 has 19, and more registers, so fewer warps.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 128, .spill_bytes = 0}, {.sm = 90, .registers = 128, .spill_bytes = 0}},
    .variants = {variant<Config<4>>("16 rows, 4 warps")},
});

}  // namespace
