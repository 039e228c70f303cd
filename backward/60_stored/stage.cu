#include "harness/stages/stage.hpp"
#include "harness/stages/tiles.hpp"
#include "kernel.cuh"

namespace {

// The n x n weights and their gradients are written, each once.
ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t heads = shape.batch_heads(), pairs = ladder::Backward(shape, 1, 1).tiles;  // of a query and a key
  const uint64_t n_q = shape.n, n_k = shape.keys(), d = shape.d;
  return {.exponentials = pairs, .gmem_bytes_written = pairs * 2 * 4 + heads * (n_q * 4 + (n_q + 2 * n_k) * d * 2)};
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
    .prediction = "1 to 2 TFLOPS on an H200, 2.5 times the forward's operations being counted: 00_naive has 1.5, and "
                  "five loops of the same kind stand here where it has two. The two that walk down the columns of P "
                  "and dS are no slower: their 16 threads of a row read one number together.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 64, .spill_bytes = 0}, {.sm = 90, .registers = 64, .spill_bytes = 0}},
    .variants = {ladder::make_variant({}, 0, run, reinterpret_cast<const void*>(weights), predict,
                                      {.label = "1x1, 8 warps",
                                       .recorded = true,
                                       .accepts = {.features = ladder::CAUSAL | ladder::TAILS | ladder::CROSS,
                                                   .min_d = 1,
                                                   .max_d = 256,
                                                   .formula = "backward"},
                                       .workspace_bytes = workspace_bytes,
                                       .stores_scores = true})},
});

}  // namespace
