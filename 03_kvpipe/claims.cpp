#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("V is copied under QK, and the next K under PV; before, nothing was") {
  const int per_tile = mma_per_tile(rung());
  // K's first copy has no product before it; V is copied in the tile that uses it, so in all four.
  CHECK(mma_under_copies(rung()) == Overlaps{{{"V", "K"}, 4 * per_tile}, {{"K", "V"}, 3 * per_tile}});
  CHECK(mma_under_copies(previous()) == Overlaps{});
}

CLAIM("in the machine code, copies pass registers by") {
  CHECK(in_machine_code(previous(), "LDGSTS") == 0);
  CHECK(in_machine_code(rung(), "LDGSTS") > 0);
}
