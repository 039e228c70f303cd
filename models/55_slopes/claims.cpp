#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual(bool alibi) {
  return {.heads = 4,
          .n = 768,
          .d = 128,
          .causal = true,
          .alibi = alibi,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("ALiBi is a ninth slice of QK, and a maximum rises because of it in the last tile of a pair alone") {
  const Counts plain = counted(rung(), usual(false)), sloped = counted(rung(), usual(true));
  CHECK(16 * sloped.wgmma == 17 * plain.wgmma);
  const uint64_t pairs = 4 * 3, warps = 8;  // of the second blocks
  CHECK(sloped.yes_votes > plain.yes_votes);
  CHECK(sloped.yes_votes <= plain.yes_votes + pairs * warps);
  CHECK(counted(previous(), usual(true)).yes_votes > sloped.yes_votes);
}

CLAIM(
    "without ALiBi every count is as before, but for shared memory that nobody writes, and a vote more where it "
    "looks") {
  const auto but_for_ramp = [](const Rung& of) {
    return but_for(counts_of(counted(of, usual(false))), {&Counts::unused_smem_bytes, &Counts::votes});
  };
  CHECK(but_for_ramp(rung()) == but_for_ramp(previous()));
}
