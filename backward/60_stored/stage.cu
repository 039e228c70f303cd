#include "harness/stage.hpp"
#include "kernel.cuh"

namespace {

ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t heads = shape.batch_heads(), n_q = shape.n, n_k = shape.keys(), d = shape.d;
  uint64_t pairs = 0, idle = 0;  // of a head
  for (uint64_t query = 0; query < n_q; ++query) {
    const uint64_t seen =
        shape.causal ? ladder::min<uint64_t>(ladder::max<int64_t>(query + 1 + n_k - n_q, 0), n_k) : n_k;
    pairs += seen;
    if (query % TILE == TILE - 1 || query + 1 == n_q) idle += tiles(n_k) - tiles(seen);  // of this row of blocks
  }
  return {.shuffles = heads * n_q * 5,
          .exponentials = heads * pairs,
          // Two dot products of a pair, each with two more loads at least and a store, and three sums over d columns.
          .gmem_accesses = heads * (pairs * (2 * 2 * d + 2 + 3 + 3 * 2 * d) + n_q * (2 * d + 1) + (n_q + 2 * n_k) * d),
          .gmem_bytes_read = heads * (pairs * (2 * 2 * d * 2 + 3 * 4 + 3 * d * (4 + 2)) + n_q * 2 * d * 2),
          .gmem_bytes_written = heads * (pairs * 2 * 4 + n_q * 4 + (n_q + 2 * n_k) * d * 2),
          .idle_blocks = heads * 2 * idle};  // behind the diagonal, of the two kernels that write P and dS
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * (2 * uint64_t(shape.keys()) + 1) * sizeof(float);  // P, dS and D
}

const ladder::Registration registration({
    .name = "60_stored",
    .previous = "00_naive",
    .role = ladder::Role::line,
    .more_lines = {ladder::MoreLines::is_new, "Gradients."},
    .idea = "Gradients: one kernel per formula, with the n x n weights and their gradients in global memory.",
    .limit = "00_naive gives O and no gradient: nothing can be trained with it.",
    .prediction =
        "1 to 2 TFLOPS on an H200, 2.5 times the forward's operations being counted: 00_naive has 1.5, and five loops "
        "of the "
        "same kind stand here where it has two. The two that walk down the columns of P and dS are no slower: their 16 "
        "threads of a row read one number together.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 64, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {ladder::make_variant({}, 0, run, reinterpret_cast<const void*>(weights), predict,
                                      {.label = "1x1, 8 warps",
                                       .accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS,
                                                   .min_d = 1,
                                                   .max_d = 256,
                                                   .formula = "backward"},
                                       .workspace_bytes = workspace_bytes,
                                       .stores_scores = true})},
});

}  // namespace
