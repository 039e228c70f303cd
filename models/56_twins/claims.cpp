#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of_heads(int heads, int kv_heads, bool causal) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .n = 1000,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("without a mask, and without twins, every count is as before, and every bit of O") {
  for (const Spec& spec : {of_heads(4, 2, false), of_heads(3, 1, true), of_heads(2, 2, true)}) {
    CHECK(but_for(counts_of(counted(rung(), spec)), {&Counts::unused_smem_bytes}) ==
          but_for(counts_of(counted(previous(), spec)), {&Counts::unused_smem_bytes}));
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("twins walk together: no tile of keys is copied that one of the two lets pass") {
  const Spec spec = of_heads(4, 2, true);
  // Two pairs of heads; queries once, and for each of eight tiles of them the keys and values up to its own, once for both.
  const uint64_t keys = 128 * (1 + 2 + 3 + 4 + 5 + 6 + 7) + 1000;
  CHECK(counted(rung(), spec).gmem_bytes_read == (4 * 1000 + 2 * 2 * keys) * 128 * 2);
  CHECK(counted(rung(), spec).multicast_bytes < counted(previous(), spec).multicast_bytes);
}

CLAIM("the block that has most to do has less of it") {
  const Spec spec = of_heads(32, 8, true);
  CHECK(counted(rung(), spec).products_of_busiest_block < counted(previous(), spec).products_of_busiest_block);
  CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
}
