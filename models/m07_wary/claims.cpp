#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("on calm inputs every count is as before, that of exponentials too, and every bit of O") {
  for (const bool causal : {false, true}) {
    const Spec spec{.heads = 3,
                    .n = 512,
                    .d = 128,
                    .causal = causal,
                    .q_type = Element::bf16,
                    .kv_type = Element::bf16,
                    .o_type = Element::bf16};
    CHECK(counts_of(counted(rung(), spec)) == counts_of(counted(previous(), spec)));
    CHECK(counted(rung(), spec).exponentials == counted(previous(), spec).exponentials);
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("a block makes a tile of weights twice for its first queries alone, where before it did for all of them") {
  const Problem problem = growing_scores(rung(), 80.0f);  // from one tile to the next
  const auto exponentials = [&](const Rung& rung) {
    return run_on_emulator(rung, rung.variants[0], problem).counters.exponentials;
  };
  const Tile& tile = rung().variants[0].tile;
  const uint64_t q_tiles = uint64_t(problem.shape.n / tile.br), later = q_tiles - emulator::MULTIPROCESSORS;
  CHECK(exponentials(previous()) - exponentials(rung()) == later * uint64_t(tile.br * tile.bc));
}
