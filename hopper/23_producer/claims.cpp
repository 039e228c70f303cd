#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, but that no thread waits for its own copies") {
  const Counts before = counts_of(counted(previous()));
  CHECK(counts_of(counted(rung())) ==
        but_for(before, {&Counts::products_under_copies, &Counts::loads_awaited_by_asker}));
}

CLAIM("who multiplies asks for no copies any more") {
  const int warps = rung().variants[0].tile.warps;
  CHECK(copying_warps(previous()) == std::set<int>{0});
  CHECK(copying_warps(rung()) == std::set<int>{warps});  // the first behind them
}

CLAIM("the softmax runs under products as before") {
  CHECK(under_products(rung(), "vote.any") == under_products(previous(), "vote.any"));
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
