#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "every count is as before on calm inputs, but that a warp asks once more on its first tile, and every bit of O, on "
    "calm inputs and where maxima grow") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 3, .n = 512, .d = 128, .causal = causal};
    CHECK(but_for(counts_of(counted(rung(), shape)), {&Counts::products_under_copies, &Counts::votes}) ==
          but_for(counts_of(counted(previous(), shape)), {&Counts::products_under_copies, &Counts::votes}));
    CHECK(same_bits(checked(rung(), shape), checked(previous(), shape)));
  }
  for (const float growth : {3.0f, 20.0f}) {  // from one tile to the next, for keys come from the start
    const CheckResult now = judged(rung(), growing_scores(rung(), growth));
    CHECK(same_bits(now, judged(previous(), growing_scores(rung(), growth))));
  }
}
