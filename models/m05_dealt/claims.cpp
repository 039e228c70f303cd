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
    "of six heads of 1500 queries the busiest of four blocks makes less than before, and all of them as many "
    "products") {
  const Spec spec = of(6, 1500, true);
  const auto now = counted(rung(), spec), before = counted(previous(), spec);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.products_of_busiest_block < before.products_of_busiest_block);
}

CLAIM("without a mask, too, where four tiles are a head and the last one is not full") {
  const Spec spec = of(8, 640, false);
  CHECK(counted(rung(), spec).products_of_busiest_block < counted(previous(), spec).products_of_busiest_block);
}

CLAIM("every bit of O is as before") {
  for (const Spec& spec : {of(3, 512, true), of(12, 1024, true), of(2, 700, true), of(2, 700, false)})
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}
