#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before but that of products under copies") {
  CHECK(but_for(counts_of(counted(rung())), {&Counts::products_under_copies}) ==
        but_for(counts_of(counted(previous())), {&Counts::products_under_copies}));
  CHECK(counted(rung()).bulk_bytes == counted(previous()).bulk_bytes);
  CHECK(counted(rung()).bulk_copies == counted(previous()).bulk_copies);
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
