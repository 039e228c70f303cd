#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("nothing that is counted changes, nor a bit of O") {
  for (const bool causal : {false, true}) {
    const Spec spec{.heads = 3,
                    .n = 512,
                    .d = 128,
                    .causal = causal,
                    .q_type = Element::bf16,
                    .kv_type = Element::bf16,
                    .o_type = Element::bf16};
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
    CHECK(counted(rung(), spec).exponentials == counted(previous(), spec).exponentials);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
