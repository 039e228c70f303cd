#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int left) {
  return {.heads = 1,
          .n = 1024,
          .d = 128,
          .causal = true,
          .left = left,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("every count is as before, in a window and without") {
  for (const int left : {-1, 200, 256}) {
    CHECK(counts_of(counted(rung(), spec_of(left))) == counts_of(counted(previous(), spec_of(left))));
  }
}
