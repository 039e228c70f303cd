#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a third slot: the first two tiles are copied before any product") {
  const int per_tile = mma_per_tile(rung());
  CHECK(mma_under_copies(rung()) == Overlaps{{{"V", "V"}, 2 * per_tile}, {{"K", "V"}, 2 * per_tile}});
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
