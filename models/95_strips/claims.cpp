#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int heads, int kv_heads, bool causal, int n = 1000) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .n = n,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("dense, and with twins, blocks do as much as before, and give the same bits") {
  for (const Spec& spec : {spec_of(3, 1, false, 500), spec_of(4, 2, true, 500)}) {
    const auto now = counted(rung(), spec), before = counted(previous(), spec);
    CHECK(now.wgmma == before.wgmma);
    CHECK(now.gmem_bytes_read == before.gmem_bytes_read);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM(
    "without twins both blocks of a pair multiply equally often, with the bits of before, and the busiest does less") {
  const Spec spec = spec_of(1, 1, true, 1024);
  const auto busiest = [&](const Rung& of) { return counted(of, spec).products_of_busiest_block; };
  const auto now = counted(rung(), spec);
  // A head of eight tiles is two shares, each of two pairs. One has 8 and 2 tiles of keys, the other 6 and 4.
  CHECK(now.wgmma == 16 * 2 * (7 + 8 + 1 + 2 + 5 + 6 + 3 + 4));
  CHECK(busiest(rung()) * 4 == now.wgmma);
  CHECK(busiest(previous()) * 9 == busiest(rung()) * 10);
  CHECK(now.gmem_bytes_read == counted(previous(), spec).gmem_bytes_read);
  CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}

CLAIM("strips that lie outside, and queries that begin within a tile of keys") {
  for (const int n : {1, 64, 65, 193, 300}) {
    Spec spec = spec_of(2, 2, true, n);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
    spec.n_k = n + 40;
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}
