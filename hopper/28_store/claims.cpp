#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before but those of barriers, copies and stores, and every bit of O") {
  Counts now = counts_of(counted(rung()));
  const Counts before = counts_of(counted(previous()));
  const Tile& tile = rung().variants[0].tile;
  CHECK(now.barriers - before.barriers == uint64_t(SMALL.n / tile.br) * (tile.warps / 4));
  now.barriers = before.barriers;
  now.bulk_copies = before.bulk_copies;
  CHECK(now.gmem_accesses == 0);
  now.gmem_accesses = before.gmem_accesses;
  CHECK(now == before);
  CHECK(same_bits(checked(rung()), checked(previous())));
}

CLAIM("stmatrix has no bank conflicts, and one instruction stores two fragments of a warp") {
  const Traffic stores = traffic(counted(rung()), "Q", "stmatrix");
  CHECK(stores.requests == SMALL.n / 16 * (SMALL.d / 16));
  CHECK(stores.wavefronts == stores.ideal);
}

CLAIM("the copy engine alone writes to global memory, one copy for a warp's rows of a panel") {
  CHECK(counted(rung()).bulk_copies - counted(previous()).bulk_copies == SMALL.n / 16 * 2);
}
