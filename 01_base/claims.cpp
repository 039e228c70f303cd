#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the same to the bit and in every count as before: a warp has two groups of rows instead of one") {
  const CheckResult &before = checked(previous()), &after = checked(rung());
  CHECK(same_bits(before, after));
  CHECK(counts_of(*before.counters) == counts_of(*after.counters));
}

CLAIM("all ldmatrix together have 8-way conflicts, and nothing is copied under a product") {
  CHECK(ldmatrix_ways(counted(rung())) == 8.0);
  CHECK(mma_under_copies(rung()) == Overlaps{});
}

CLAIM("bytes from global memory follow the tile's formula") {
  for (const Variant& variant : rung().variants) {
    CHECK(counted(rung(), variant).gmem_bytes_read == bytes_read_by_tile(variant.tile, SMALL));
  }
}
