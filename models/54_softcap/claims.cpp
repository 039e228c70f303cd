#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 2,
          .n = 512,
          .d = 128,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("without a function and without a sink every count is as before, and every bit of O") {
  CHECK(counts_of(counted(rung(), usual())) == counts_of(counted(previous(), usual())));
  CHECK(same_bits(checked(rung(), usual()), checked(previous(), usual())));
}

CLAIM("a softcap takes an exponential more for each score, ALiBi and a sink none") {
  const Counts plain = counted(rung(), usual());
  Spec capped = usual(), sloped = usual();
  capped.softcap = 20;
  sloped.alibi = sloped.sink = true;
  const uint64_t corrections = plain.exponentials % (128 * 128);  // of first tiles
  CHECK(counted(rung(), capped).exponentials - plain.exponentials == plain.exponentials - corrections);
  CHECK(counted(rung(), sloped).exponentials == plain.exponentials);
}
