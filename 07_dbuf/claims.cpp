#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, but for a vote in each tile on who has met a huge score") {
  const auto without_votes = [](const Rung& rung) {
    return but_for(counts_of(counted(rung)), {&Counts::votes, &Counts::yes_votes, &Counts::votes_on_scores});
  };
  CHECK(without_votes(rung()) == without_votes(previous()));
  CHECK(ldmatrix_by_region(rung()) == ldmatrix_by_region(previous()));
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}
