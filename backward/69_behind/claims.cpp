#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, but that the four products of dK are left running, and not the eight of dQ") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  Counts now = counts_of(counted(rung(), spec));
  const Counts before = counts_of(counted(previous(), spec));
  CHECK(before.wgmma_left_running - now.wgmma_left_running == 4 * 2 * 2 * (8 - 4));  // tiles, blocks, warpgroups
  now.wgmma_left_running = before.wgmma_left_running;
  CHECK(now == before);
}
