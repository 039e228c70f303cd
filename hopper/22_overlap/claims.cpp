#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
}

CLAIM("the softmax of every tile but the first runs under products") {
  CHECK(under_products(previous(), "vote.any") == 0);
  CHECK(under_products(rung(), "vote.any") == GROWING_TILES - 1);
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
