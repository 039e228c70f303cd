#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("on calm inputs every count is as before, that of exponentials too") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
  CHECK(counted(rung()).exponentials == counted(previous()).exponentials);
}

CLAIM("the softmax runs under products as before") {
  CHECK(under_products(rung(), "vote.any") == under_products(previous(), "vote.any"));
}

CLAIM("after the first surprise O is rescaled when a maximum has grown by more than 8") {
  CHECK(rescaled_tiles(rung(), 0.0f) == rescaled_tiles(previous(), 0.0f));
  CHECK(rescaled_tiles(previous(), 3.0f) == std::vector{0, 4});
  CHECK(rescaled_tiles(rung(), 3.0f) == std::vector{0, 4, 7});
  CHECK(rescaled_tiles(rung(), 20.0f) == rescaled_tiles(previous(), 20.0f));
}

CLAIM("the exponentials of one tile alone are taken twice, where the rung before takes those of all but the first") {
  const Problem problem = growing_scores(rung(), 20.0f);
  const auto exponentials = [&](const Rung& rung) {
    return run_on_emulator(rung, rung.variants[0], problem).counters.exponentials;
  };
  const uint64_t of_a_tile = uint64_t(problem.shape.n) * rung().variants[0].tile.bc;
  CHECK(exponentials(previous()) - exponentials(rung()) == (GROWING_TILES - 2) * of_a_tile);
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
