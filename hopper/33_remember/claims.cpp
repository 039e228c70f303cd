#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("on calm inputs every count is as before, that of exponentials too, and every bit of O") {
  for (const bool causal : {false, true}) {
    const Shape shape{.batch = 1, .heads = 3, .n = 512, .d = 128, .causal = causal};
    CHECK(counts_of(counted(rung(), shape)) == counts_of(counted(previous(), shape)));
    CHECK(counted(rung(), shape).exponentials == counted(previous(), shape).exponentials);
    CHECK(same_bits(checked(rung(), shape), checked(previous(), shape)));
  }
}

CLAIM("a block makes a tile of weights twice for its first queries alone, where before it did for all of them") {
  const Problem problem = growing_scores(rung(), -20.0f);  // from one tile to the next, for keys come from the end
  const auto exponentials = [&](const Rung& rung) {
    return run_on_emulator(rung, rung.variants[0], problem).counters.exponentials;
  };
  const Tile& tile = rung().variants[0].tile;
  const uint64_t q_tiles = uint64_t(problem.shape.n / tile.br), later = q_tiles - emulator::MULTIPROCESSORS;
  CHECK(exponentials(previous()) - exponentials(rung()) == later * uint64_t(tile.br * tile.bc));
}
