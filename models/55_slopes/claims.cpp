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

CLAIM("ALiBi is a ninth slice of QK, and no maximum rises because of it") {
  const Counts plain = counted(rung(), usual(false)), sloped = counted(rung(), usual(true));
  CHECK(16 * sloped.wgmma == 17 * plain.wgmma);
  CHECK(sloped.yes_votes == plain.yes_votes);
  CHECK(sloped.exponentials == plain.exponentials);
  CHECK(counted(previous(), usual(true)).yes_votes > 2 * counted(previous(), usual(false)).yes_votes);
}

CLAIM("without ALiBi every count is as before, but for shared memory that nobody writes") {
  const auto but_for_ramp = [](const Rung& of) {
    return but_for(counts_of(counted(of, usual(false))), {&Counts::unused_smem_bytes});
  };
  CHECK(but_for_ramp(rung()) == but_for_ramp(previous()));
}
