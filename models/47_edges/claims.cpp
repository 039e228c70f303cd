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

CLAIM("every count is as before, in a window and without, but that warps look at fewer tiles, and vote less") {
  for (const int left : {-1, 200, 256}) {
    const auto but_for_votes = [&](const Rung& of) {
      return but_for(counts_of(counted(of, spec_of(left))), {&Counts::votes});
    };
    CHECK(but_for_votes(rung()) == but_for_votes(previous()));
  }
}
