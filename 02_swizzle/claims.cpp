#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the swizzle is all that removes the conflicts: the same ldmatrix at the same tile") {
  const Variant& plain = with_tile(previous(), rung().variants[0].tile);
  CHECK(ldmatrix_by_region(previous(), plain) == ldmatrix_by_region(rung()));
  CHECK(ldmatrix_ways(counted(previous(), plain)) == 8.0);
  CHECK(ldmatrix_ways(counted(rung())) == 1.0);
}
