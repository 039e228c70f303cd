#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("O is rescaled in the first tile and when the maximum has grown by more than 8, else not") {
  CHECK(rescaled_tiles(rung(), -20.0f) == std::vector{0});
  CHECK(rescaled_tiles(rung(), 0.0f) == std::vector{0});
  CHECK(rescaled_tiles(rung(), 3.0f) == std::vector{0, 3, 6});  // by 9; by 6 not yet
  CHECK(rescaled_tiles(rung(), 20.0f) == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
}

CLAIM("weights of up to 2^8 are right") {
  for (const float growth : {3.0f, 20.0f}) {
    Problem problem = growing_scores(rung(), growth);
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.answers_right());  // scores that grow are no normal inputs, whatever their kind says
  }
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}
