#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("every count is as before on calm inputs") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 3, .n = 512, .d = 128, .causal = causal};
    CHECK(counts_of(counted(rung(), shape)) == counts_of(counted(previous(), shape)));
  }
}

CLAIM("a sink at key 0 raises no maximum after the first tile, and each warp's before") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 2, .n = 512, .d = 128, .causal = causal};
    const auto raised = [&](const Rung& rung) {
      return run_on_emulator(rung, rung.variants[0], problem(shape, InputKind::sinks35)).counters.yes_votes;
    };
    const uint64_t warps = 2 * 512 / 16;  // each votes once for its first tile
    CHECK(raised(rung()) == warps);
    CHECK(raised(previous()) > warps);
  }
}
