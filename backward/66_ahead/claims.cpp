#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, but that S runs on while dQ is waited for, and dP no longer while S is") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  Counts now = counts_of(counted(rung(), spec));
  const Counts before = counts_of(counted(previous(), spec));
  CHECK(before.wgmma_left_running - now.wgmma_left_running == 2 * 2 * 8);  // the first tile's, of two blocks
  now.wgmma_left_running = before.wgmma_left_running;
  CHECK(now == before);
}
