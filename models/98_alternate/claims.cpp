#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("who has which strip changes no product of a block, and no bit") {
  for (const int n : {300, 1024}) {
    const Spec spec = {.heads = 2,
                       .n = n,
                       .d = 128,
                       .causal = true,
                       .q_type = Element::bf16,
                       .kv_type = Element::bf16,
                       .o_type = Element::bf16};
    const auto now = counted(rung(), spec), before = counted(previous(), spec);
    CHECK(now.wgmma == before.wgmma);
    CHECK(now.products_of_busiest_block == before.products_of_busiest_block);
    CHECK(now.gmem_bytes_read == before.gmem_bytes_read);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
