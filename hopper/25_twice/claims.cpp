#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, and every bit of O") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
  CHECK(same_bits(checked(rung()), checked(previous())));
}

CLAIM("the softmax runs under products as before") {
  CHECK(under_products(rung(), "vote.any") == under_products(previous(), "vote.any"));
}

CLAIM("an odd number of tiles ends as an even one does") {
  const int bc = rung().variants[0].tile.bc;
  for (const int tiles : {2, 3}) checked(rung(), {.batch = 1, .heads = 1, .n = tiles * bc, .d = 128});
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
