#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before but that of products left running: PV of each tile but the last") {
  Counts now = counts_of(counted(rung()));
  const Counts before = counts_of(counted(previous()));
  const Tile& tile = rung().variants[0].tile;
  CHECK(before.wgmma_left_running == 0);
  CHECK(now.wgmma_left_running == uint64_t(SMALL.n / 64) * (SMALL.n / tile.bc - 1) * (tile.bc / 16));
  now.wgmma_left_running = 0;
  CHECK(now == before);
}

CLAIM("the softmax of every tile but the first runs under products") {
  CHECK(under_products(previous(), "vote.any") == 0);
  CHECK(under_products(rung(), "vote.any") == GROWING_TILES - 1);
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
