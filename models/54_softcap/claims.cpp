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
Spec capped(float softcap) {
  Spec spec = usual();
  spec.softcap = softcap;
  return spec;
}

}  // namespace

CLAIM("without a softcap every count is as before, and every bit of O") {
  CHECK(counts_of(counted(rung(), usual())) == counts_of(counted(previous(), usual())));
  CHECK(same_bits(checked(rung(), usual()), checked(previous(), usual())));
}

CLAIM("where scores are small beside the cap, it takes no exponential") {
  CHECK(counted(rung(), capped(50)).exponentials == counted(rung(), usual()).exponentials);
  CHECK(counted(previous(), capped(50)).exponentials > 3 * counted(rung(), usual()).exponentials / 2);
}

CLAIM("where they are large, it takes as many as before: a tile is made twice where that was not expected") {
  const uint64_t exponentials = counted(rung(), capped(2)).exponentials;
  CHECK(exponentials >= counted(previous(), capped(2)).exponentials);
  CHECK(exponentials < counted(previous(), capped(2)).exponentials * 5 / 4);
}

CLAIM("large scores come out right, too") {
  for (const float softcap : {5, 50, 1000})
    CHECK(check_on_emulator(rung(), rung().variants.front(), problem(capped(softcap), InputKind::peaky)).ok);
}

CLAIM("where scores are large, the rung before is more than twice as wrong, by its tanh") {
  const auto error_of = [](const Rung& of) {
    return check_on_emulator(of, of.variants.front(), problem(capped(50), InputKind::peaky)).rms_err;
  };
  CHECK(error_of(previous()) > 2 * error_of(rung()));
}

CLAIM("large scores behind small ones are noticed") {
  for (const InputKind kind : {InputKind::last_tile_max, InputKind::creeping_max, InputKind::giant_keys})
    CHECK(check_on_emulator(rung(), rung().variants.front(), problem(capped(50), kind)).ok);
}
