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

CLAIM("of eight heads of 512 queries the busiest of four blocks makes a quarter of the products, and not 26 of 84") {
  // A head's strips of 64 see 1 + 1 + 2, 2 + 3 + 3 and 4 + 4 tiles of keys, and one lies behind the end.
  const Spec spec = of(8, 512, true);
  const auto now = counted(rung(), spec), before = counted(previous(), spec);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.products_of_busiest_block * 26 == before.products_of_busiest_block * 21);
}

CLAIM("every bit of O is as before") {
  for (const Spec& spec : {of(3, 512, true), of(2, 700, true), of(2, 700, false)})
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}
