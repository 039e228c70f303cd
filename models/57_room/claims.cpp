#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 4,
          .n = 512,
          .d = 256,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("every bit of O is as before") {
  for (const bool causal : {false, true}) {
    Spec spec = usual();
    spec.causal = causal;
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("four warps wait for each other only where tiles pass, not before O leaves") {
  // Of each of eight pairs, one a head and its half, the first block's two warpgroups; and twice all of a block's threads.
  Spec dense = usual();
  dense.causal = false;
  const uint64_t blocks = counted(rung(), dense).barriers / 2;
  CHECK(counted(rung(), usual()).barriers == 2 * blocks + 8 * 2);
  CHECK(counted(previous(), dense).barriers == 2 * blocks + 2 * 8 * 2);
}

CLAIM("the last half of a tile of O leaves under the products of the next queries") {
  CHECK(counted(rung(), usual()).products_under_copies > 0);
  CHECK(counted(previous(), usual()).products_under_copies == 0);
}

CLAIM("memory for one Q, half an O and four tiles is full") {
  CHECK(counted(rung(), usual()).unused_smem_bytes == 0);
}
