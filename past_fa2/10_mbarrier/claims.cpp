#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("both K and V are copied under PV, and the loop has no barrier for the block") {
  const int per_tile = mma_per_tile(rung());
  CHECK(mma_under_copies(rung()) == Overlaps{{{"V", "V"}, 3 * per_tile}, {{"K", "V"}, 3 * per_tile}});
  const auto barriers_per_block = [](const Shape& shape) {
    return counted(rung(), shape).barriers / (shape.n / rung().variants[0].tile.br);
  };
  CHECK(barriers_per_block(SMALL) == barriers_per_block(FULL));
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
