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

CLAIM("a block of an RTX card can have the shared memory of every variant") {
  for (const Variant& variant : rung().variants) CHECK(variant.smem_bytes <= 99 * 1024);
}

CLAIM("of keys that nobody sees none is copied") {
  Spec window = usual();
  window.left =
      63;  // with its own key a query sees 64: a block of 128 queries walks through three tiles, the first one through two
  CHECK(counted(rung(), window).barriers == 2 * 2 * (2 + 3 * 3));
  CHECK(counted(rung(), usual()).barriers == 2 * 2 * (2 + 4 + 6 + 8));
}

CLAIM("a softcap takes an exponential more for each score, ALiBi and a sink none") {
  const auto of_scores = [](const Spec& spec) {  // a rescale takes one of each lane for its four rows
    const Counts counts = counted(rung(), spec);
    return counts.exponentials - counts.yes_votes * 4 * 32;
  };
  Spec capped = usual(), sloped = usual();
  capped.softcap = 20;
  sloped.alibi = sloped.sink = true;
  CHECK(of_scores(capped) == 2 * of_scores(usual()));
  CHECK(of_scores(sloped) == of_scores(usual()));
}
