#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n, bool causal) {
  return {.heads = 2,
          .n = n,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM(
    "under a mask a block is brought 4.5 tiles of keys on average and not 5, as many products are made, and more is "
    "read") {
  const Spec spec = of(1024, true);
  const auto now = counted(rung(), spec), before = counted(previous(), spec);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.multicast_bytes * 10 == before.multicast_bytes * 9);
  CHECK(now.gmem_bytes_read > before.gmem_bytes_read);
  CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}

CLAIM("without a mask the products, the bytes and the bits of before") {
  const Spec spec = of(500, false);
  const auto now = counted(rung(), spec), before = counted(previous(), spec);
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.gmem_bytes_read == before.gmem_bytes_read);
  CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}
