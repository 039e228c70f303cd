#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count and every bit of O is as before") {
  for (const int n : {256, 384, 640}) {  // and numbers of tiles of keys that are odd
    const Shape shape{.batch = 1, .heads = 3, .n = n, .d = 128};
    CHECK(counts_of(counted(rung(), shape)) == counts_of(counted(previous(), shape)));
    CHECK(same_bits(checked(rung(), shape), checked(previous(), shape)));
  }
}
