#include "harness/problem/io_model.hpp"

#include "harness/tests/catch.hpp"

using namespace ladder;

namespace {

constexpr int D = 64, BR = 32, BC = 16;

// Bytes of one head, tile by tile: what the formulas sum up.
double walked(int n, bool causal) {
  double bytes = 0;
  for (int query = 0; query < n; query += BR) {
    bytes += 2.0 * BR * D * 2;                                                                // Q read, O written
    for (int key = 0; key < (causal ? query + BR : n); key += BC) bytes += 2.0 * BC * D * 2;  // K and V
  }
  return bytes;
}

}  // namespace

TEST_CASE("the IO model is the sum over the tiles") {
  const Stage tiled;
  Variant variant;
  variant.tile = {BR, BC, 2};
  for (const int n : {32, 256, 1024}) {
    for (const bool causal : {false, true}) {
      const Shape shape{.batch = 3, .heads = 2, .n = n, .d = D, .causal = causal};
      CHECK(io_model_bytes(tiled, variant, shape) == 6 * walked(n, causal));
    }
  }
  CHECK(io_model_formula(tiled, variant, {}) == "4nd + 4n^2 d / 32");
}

TEST_CASE("scores in global memory cost n^2") {
  const Stage naive;
  Variant variant;
  // No tiles and no scores: each query reads all keys and values.
  CHECK(io_model_bytes(Stage(), variant, {.n = 100, .d = 10}) == 2 * 100 * 10 * 2 + 100 * (2 * 100 * 10 * 2));
  variant.workspace_bytes = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * shape.n * 4; };
  // Q, K, V, O once, and the scores, in 2 bytes, once in each direction.
  CHECK(io_model_bytes(naive, variant, {.n = 100, .d = 10}) == 4 * 100 * 10 * 2 + 2 * 100 * 100 * 2);
  CHECK(io_model_bytes(naive, variant, {.n = 100, .d = 10, .causal = true}) == 4 * 100 * 10 * 2 + 2 * 5050 * 2);
}

TEST_CASE("a workspace that is too small for scores is written once and read once, beside what tiles move") {
  Variant split;
  split.tile = {BR, BC, 2};
  split.workspace_bytes = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * (D + 2) * 4; };
  const Shape shape{.batch = 3, .heads = 2, .n = 256, .d = D};
  CHECK(io_model_bytes(Stage(), split, shape) == 6 * (walked(256, false) + 2 * 256 * (D + 2) * 4));
  CHECK(io_model_formula(Stage(), split, shape) == "4nd + 4n^2 d / 32 + 2 of the workspace");
}
