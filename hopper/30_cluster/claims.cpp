#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("K and V are read once for two blocks, and land in both") {
  const Counts now = counts_of(counted(rung())), before = counts_of(counted(previous()));
  const uint64_t Q = uint64_t(SMALL.n) * SMALL.d * 2;
  CHECK(now.gmem_bytes_read - Q == (before.gmem_bytes_read - Q) / 2);
  CHECK(now.multicast_bytes == before.gmem_bytes_read - Q);
  CHECK(before.multicast_bytes == 0);
}

CLAIM("every bit of O is as before, also where a head has an odd number of tiles of queries") {
  CHECK(same_bits(checked(rung()), checked(previous())));
  const Shape odd{.batch = 1, .heads = 2, .n = 384, .d = 128};
  CHECK(same_bits(checked(rung(), odd), checked(previous(), odd)));
}
