#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before") {
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
  CHECK(counted(rung()).bulk_bytes == counted(previous()).bulk_bytes);
  CHECK(counted(rung()).bulk_copies == counted(previous()).bulk_copies);
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
