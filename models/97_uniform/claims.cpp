#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the products and the bits of before, and an exchange more for each warp of two warpgroups") {
  for (const bool causal : {false, true}) {
    const Spec spec = {.n = 500,
                       .d = 128,
                       .causal = causal,
                       .q_type = Element::bf16,
                       .kv_type = Element::bf16,
                       .o_type = Element::bf16};
    const auto now = counted(rung(), spec), before = counted(previous(), spec);
    CHECK(now.wgmma == before.wgmma);
    CHECK(now.shuffles - before.shuffles == now.warps / 12 * 8);  // of twelve warps of a block four copy
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
