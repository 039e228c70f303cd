#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the order of blocks changes, and with it who is the last to end; no other count does, with a mask or without") {
  for (const bool causal : {false, true}) {
    const Spec spec{.formula = "backward", .heads = 8, .n = 256, .causal = causal};
    const emulator::Counters now = counted(rung(), spec), before = counted(previous(), spec);
    CHECK((now.products_of_busiest_sm < before.products_of_busiest_sm) == causal);
    CHECK(counts_of(now) == counts_of(before));
  }
}
