#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before: two products have changed places") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
}
