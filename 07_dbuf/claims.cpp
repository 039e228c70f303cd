#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
  CHECK(ldmatrix_by_region(rung()) == ldmatrix_by_region(previous()));
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}
