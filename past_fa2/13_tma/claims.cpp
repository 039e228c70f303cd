#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "every count is as before, beside the copies and what runs under them, of which the engine takes three boxes for a "
    "block's first tile and "
    "two for another") {
  Counts now = counts_of(counted(rung()));
  const Tile& tile = rung().variants[0].tile;
  const auto blocks = uint64_t(SMALL.n / tile.br), tiles = uint64_t(SMALL.n / tile.bc);
  CHECK(now.bulk_copies == blocks * (1 + 2 * tiles));
  now.bulk_copies = 0;
  CHECK(but_for(now, {&Counts::products_under_copies, &Counts::loads_awaited_by_asker}) ==
        but_for(counts_of(counted(previous())), {&Counts::products_under_copies}));
  CHECK(ldmatrix_by_region(rung()) == ldmatrix_by_region(previous()));
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
