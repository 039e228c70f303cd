#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("when dense it is the rung before to the bit and in every count") {
  const CheckResult &before = checked(previous()), &after = checked(rung());
  CHECK(same_bits(before, after));
  CHECK(counts_of(*before.counters) == counts_of(*after.counters));
}

CLAIM("under the mask a block visits the tiles that its last query sees") {
  Shape causal = SMALL;
  causal.causal = true;
  const Variant& variant = with_tile(rung(), {64, 64, 4});
  CHECK(counted(rung(), variant, causal).barriers / 2 == 1 + 2 + 3 + 4);
}
