#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, and every bit of O, with a window and without") {
  for (const int left : {-1, 130}) {
    const Spec spec{.batch = 1,
                    .heads = 3,
                    .n = 500,
                    .d = 128,
                    .causal = true,
                    .left = left,
                    .q_type = Element::bf16,
                    .kv_type = Element::bf16,
                    .o_type = Element::bf16};
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
