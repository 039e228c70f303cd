#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int n, bool causal) {
  return {.heads = 2,
          .n = n,
          .d = 64,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}
constexpr int PRODUCTS = 64 / 16 + 128 / 16;  // of a strip and a tile of keys

}  // namespace

CLAIM("of 1024 queries a strip multiplies with the tiles that it sees, and the bits are those of before") {
  const Spec causal = spec_of(1024, true), dense = spec_of(1024, false);
  // Sixteen strips, and two behind the end.
  CHECK(counted(rung(), causal).wgmma == 2 * PRODUCTS * (2 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) + 2));
  CHECK(counted(previous(), causal).wgmma == 2 * PRODUCTS * 3 * (2 + 3 + 5 + 6 + 8 + 8));
  CHECK(counted(rung(), dense).wgmma == 2 * PRODUCTS * (16 * 8 + 2));
  CHECK(counted(previous(), dense).wgmma == 2 * PRODUCTS * 18 * 8);
  for (const Spec& spec : {causal, dense}) CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}

CLAIM("turns, and what is copied, are as before") {
  for (const Spec& spec : {spec_of(1024, true), spec_of(700, false)}) {
    const auto now = counted(rung(), spec), before = counted(previous(), spec);
    CHECK(now.barriers == before.barriers);
    CHECK(now.gmem_bytes_read == before.gmem_bytes_read);
  }
}
