#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("while the keys of a head are on their way, those of the one before are multiplied") {
  Spec spec = cache(1, 128);  // a step: so a block has four heads of one step each
  spec.heads = spec.kv_heads = 16;
  CHECK(counted(previous(), spec).products_under_copies == 0);
  CHECK(counted(rung(), spec).products_under_copies > 0);
  CHECK(counted(rung(), spec).mma == counted(previous(), spec).mma);
}
