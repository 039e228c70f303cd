#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("maxima are exchanged in the first tile alone, and every other count is as before") {
  Counts now = counts_of(counted(rung()));
  const Counts before = counts_of(counted(previous()));
  CHECK(before.shuffles - now.shuffles == (now.votes - now.yes_votes) * 2 * 2);
  CHECK(before.exponentials - now.exponentials == (now.votes - now.yes_votes) * 2 * 32);  // corrections
  now.shuffles = before.shuffles;
  now.exponentials = before.exponentials;
  CHECK(now == before);
}

CLAIM("the softmax runs under products as before") {
  CHECK(under_products(rung(), "vote.any") == under_products(previous(), "vote.any"));
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}

CLAIM("one lane alone that sees its row outgrow the maximum is enough") {
  Problem problem = growing_scores(rung(), 0.0f);
  // One key of the fourth tile, in a column of one lane, stands above all others by 20 powers of two.
  const int key = 3 * rung().variants[0].tile.bc + 5;
  problem.inputs.half("K")[key * problem.shape.d] = to_f16(20 * 0.6931472f / problem.shape.scale() / 8.0f);
  const CheckResult result = judged(rung(), problem);
  INFO(reasons(result));
  CHECK(result.ok);
}
