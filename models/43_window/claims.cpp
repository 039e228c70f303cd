#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int n, bool causal) {
  return {.batch = 1,
          .heads = 2,
          .n = n,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("without a window every count is as before, and every bit of O") {
  for (const bool causal : {false, true}) {
    const Spec spec = spec_of(500, causal);
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("a window of 256 has three tiles of keys for each tile of queries, however long the text is") {
  Spec spec = spec_of(2048, true);
  const auto pairs_of_tiles = [&] {
    return counted(rung(), spec).wgmma / (2 * 16) / 2;
  };  // two warpgroups, 16 slices; two heads
  CHECK(pairs_of_tiles() == 16 * 17 / 2);
  spec.left = 256;
  CHECK(pairs_of_tiles() == 16 * 3 - 3);  // the first two tiles of queries have less before them
}
