#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, that of exponentials too") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
  CHECK(counted(rung()).exponentials == counted(previous()).exponentials);
}

CLAIM("the softmax runs under products as before") {
  CHECK(under_products(rung(), "vote.any") == under_products(previous(), "vote.any"));
}

CLAIM("O is rescaled in the first tile and when a lane's sum of weights is too large for f16, else not") {
  CHECK(rescaled_tiles(rung(), -20.0f) == std::vector{0});
  CHECK(rescaled_tiles(rung(), 0.0f) == std::vector{0});
  CHECK(rescaled_tiles(rung(), 3.0f) == std::vector{0, 4});  // 32 weights of about 2^12; of 2^9 not yet
  CHECK(rescaled_tiles(rung(), 20.0f) == std::vector{0, 1, 2, 3, 4, 5, 6, 7});
}

CLAIM("weights that are large, and weights that are infinite, come out right") {
  for (const float growth : {3.0f, 20.0f, 200.0f}) {
    Problem problem = growing_scores(rung(), growth);
    problem.kinds = {InputKind::creeping_max};  // which may rescale as often as it likes
    const CheckResult result = judged(rung(), problem);
    INFO(reasons(result));
    CHECK(result.ok);
  }
}
