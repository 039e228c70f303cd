#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the order of blocks changes, and no count does, with a mask or without") {
  for (const bool causal : {false, true}) {
    const Spec spec{.formula = "backward", .heads = 4, .n = 256, .causal = causal};
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
  }
}
