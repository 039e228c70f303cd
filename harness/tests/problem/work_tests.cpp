#include "harness/problem/formula.hpp"
#include "harness/problem/spec.hpp"

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

IoModel io(const Variant& variant, const Shape& shape) {
  return formula_of(shape).io_model(variant, shape);
}

}  // namespace

TEST_CASE("the IO model is the sum over the tiles") {
  Variant variant;
  variant.tile = {BR, BC, 2};
  for (const int n : {32, 256, 1024}) {
    for (const bool causal : {false, true}) {
      const Shape shape{.batch = 3, .heads = 2, .n = n, .d = D, .causal = causal};
      CHECK(io(variant, shape).bytes == 6 * walked(n, causal));
    }
  }
  CHECK(io(variant, {}).text == "4nd + 4n^2 d / 32");
}

TEST_CASE("scores in global memory cost n^2") {
  Variant variant;
  // No tiles and no scores: each query reads all keys and values.
  CHECK(io(variant, {.n = 100, .d = 10}).bytes == 2 * 100 * 10 * 2 + 100 * (2 * 100 * 10 * 2));
  variant.workspace_bytes = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * shape.n * 4; };
  variant.stores_scores = true;
  // Q, K, V, O once, and the scores, in 2 bytes, once in each direction.
  CHECK(io(variant, {.n = 100, .d = 10}).bytes == 4 * 100 * 10 * 2 + 2 * 100 * 100 * 2);
  CHECK(io(variant, {.n = 100, .d = 10, .causal = true}).bytes == 4 * 100 * 10 * 2 + 2 * 5050 * 2);
}

TEST_CASE("a backward pass of one walk adds to all of dQ for each tile of keys") {
  Variant variant;
  variant.tile = {BR, BC, 2};
  Spec spec = *parse_spec("backward n=256 d=64");
  const double nd = 256 * D, once = 16 * nd;
  CHECK(io(variant, spec).bytes == once + 4 * nd * (256 / BR + 256 / BC));
  variant.predict = [](const Launched&) { return Counts{.gmem_bytes_reduced = 1}; };
  CHECK(io(variant, spec).bytes == once + 2 * 4 * nd * (256 / BC));
}

TEST_CASE("a workspace of anything else is written once and read once beside what tiles move, however large it is") {
  Variant split;
  split.tile = {BR, BC, 2};
  split.workspace_bytes = [](const Shape& shape) { return uint64_t(shape.batch_heads()) * shape.n * (D + 2) * 4; };
  for (const int n : {32, 256}) {  // at the shorter one it has room for all scores
    const Shape shape{.batch = 3, .heads = 2, .n = n, .d = D};
    CHECK(io(split, shape).bytes == 6 * (walked(n, false) + 2 * n * (D + 2) * 4));
    CHECK(io(split, shape).text == "4nd + 4n^2 d / 32 + 2 of the workspace");
  }
}

TEST_CASE("what a launch does at least, by FlashAttention's convention") {
  const Shape headline{.batch = 16, .heads = 16, .n = 8192, .d = 128};
  CHECK(flops_of(headline) == 4.0 * 16 * 16 * 8192.0 * 8192 * 128);
  Shape causal = headline;
  causal.causal = true;
  CHECK(flops_of(causal) == flops_of(headline) / 2);
  CHECK(formula_of(headline).work(headline).bytes == 4.0 * 16 * 16 * 8192 * 128 * 2);
}
