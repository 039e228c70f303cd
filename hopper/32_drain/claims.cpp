#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before, and every bit of O") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 3, .n = 512, .d = 128, .causal = causal};
    CHECK(but_for(counts_of(counted(rung(), shape)), {&Counts::products_under_copies}) ==
          but_for(counts_of(counted(previous(), shape)), {&Counts::products_under_copies}));
    CHECK(same_bits(checked(rung(), shape), checked(previous(), shape)));
  }
}

CLAIM("a warp waits for its O to leave while a product runs, but for the last time") {
  const char* const wait = "cp.async.bulk.wait_group.read";
  CHECK(under_products(previous(), wait) == 0);
  CHECK(under_products(rung(), wait) == 1);  // of two tiles of queries
}
