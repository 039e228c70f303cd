#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}
