#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int heads, int n, bool causal) {
  return {.heads = heads,
          .n = n,
          .d = 64,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM(
    "of six heads of 640 queries the busiest of four blocks makes 53 products where it made 63, and all of them as "
    "many") {
  // A head's strips of 64 see 4, 8, 13 and 5 tiles of keys in its four tiles of queries.
  const Spec spec = of(6, 640, true);
  const auto now = counted(rung(), spec), before = counted(previous(), spec);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.products_of_busiest_block * 63 == before.products_of_busiest_block * 53);
}

CLAIM("without a mask, too, where two tiles are a head and the last one is not full") {
  const Spec spec = of(8, 300, false);  // strips of 9 and 7 tiles of keys, and four blocks
  CHECK(counted(rung(), spec).products_of_busiest_block * 36 ==
        counted(previous(), spec).products_of_busiest_block * 32);
}

CLAIM("every bit of O is as before") {
  for (const Spec& spec : {of(3, 512, true), of(12, 1024, true), of(2, 700, true), of(2, 700, false)})
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}
