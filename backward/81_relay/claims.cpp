#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("others add, and no count changes, with a mask or without") {
  for (const bool causal : {false, true}) {
    const Spec spec{.formula = "backward", .heads = 2, .n = 256, .causal = causal};
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
  }
}
