#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {
Shape causal(int n) {
  return {.batch = 1, .heads = 2, .n = n, .d = 128, .causal = true};
}
}  // namespace

CLAIM("when dense every count is that of the rung before") {  // but not every bit: the keys come from the end
  CHECK(counts_of(counted(rung())) == counts_of(counted(previous())));
}

CLAIM("under the mask a tile of queries visits the tiles of keys up to its own") {
  const Tile& tile = rung().variants[0].tile;
  for (const int n : {512, 640, 1024}) {
    const uint64_t tiles = uint64_t(n / tile.br);
    // and where their number is odd, one that lies outside visits all of them
    const uint64_t visits = 2 * (tiles * (tiles + 1) / 2 + (tiles % 2) * tiles);
    CHECK(counted(rung(), causal(n)).votes == visits * uint64_t(tile.warps));
  }
}
