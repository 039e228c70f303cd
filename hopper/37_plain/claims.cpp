#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "every count and every bit of O is as before on calm inputs; where maxima grow they may be raised in other tiles") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 3, .n = 512, .d = 128, .causal = causal};
    CHECK(counts_of(counted(rung(), shape)) == counts_of(counted(previous(), shape)));
    CHECK(same_bits(checked(rung(), shape), checked(previous(), shape)));
  }
  for (const float growth : {3.0f, 20.0f}) CHECK(judged(rung(), growing_scores(rung(), growth)).answers_right());
}
