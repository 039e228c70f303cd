#include "harness/stages/stage.hpp"
#include "kernel.cuh"

namespace {

ladder::Counts predict(const ladder::Shape& shape) {
  const uint64_t rows = shape.batch_heads() * shape.n,
                 scores = shape.causal ? rows * (shape.n + 1) / 2 : rows * shape.n, side = tiles(shape.n);
  return {.shuffles = rows * 2 * 5,
          .exponentials = scores * 2,  // for the sum, for the weight
          .gmem_accesses = scores * (4 * shape.d + 3 + 2) + rows * shape.d,
          // Every score reads a row of Q and of K; the softmax reads S three times; every output a row of S and V.
          .gmem_bytes_read = scores * shape.d * 2 * 2 + scores * 3 * 4 + scores * shape.d * (4 + 2),
          .gmem_bytes_written = scores * 2 * 4 + rows * shape.d * 2,
          .idle_blocks = shape.causal ? shape.batch_heads() * side * (side - 1) / 2 : 0};  // above the diagonal
}

uint64_t workspace_bytes(const ladder::Shape& shape) {
  return uint64_t(shape.batch_heads()) * shape.n * shape.n * sizeof(float);  // S
}

const ladder::Registration registration({
    .name = "00_naive",
    .role = ladder::Role::line,
    .idea = "One kernel per formula: scores, softmax, output. The n x n scores go through global memory.",
    .limit = "Nothing comes before it: the formula as written.",
    .prediction = "1 to 3 TFLOPS on an H200: two loads per multiply-add, and FP32 units instead of tensor cores.",
    .min_sm = 75,
    .needs = "nothing special",
    .resources = {{.sm = 80, .registers = 56, .spill_bytes = 0}, {.sm = 90, .registers = 56, .spill_bytes = 0}},
    .variants = {ladder::make_variant({}, 0, run, reinterpret_cast<const void*>(scores), predict,
                                      {.label = "1x1, 8 warps",
                                       .accepts = {.features = ladder::CAUSAL, .min_d = 1, .max_d = 256},
                                       .workspace_bytes = workspace_bytes,
                                       .stores_scores = true})},
});

}  // namespace
