#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, but what votes say of the first tile, and every bit of O, with a window and without") {
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
    const auto but_for_votes = [&](const Rung& of) {
      return but_for(counts_of(counted(of, spec)), {&Counts::yes_votes, &Counts::votes});
    };
    CHECK(but_for_votes(rung()) == but_for_votes(previous()));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
