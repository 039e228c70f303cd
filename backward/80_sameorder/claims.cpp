#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "products, copies and what is added to dQ are as before; two reductions of a tile wait for a turn and pass it on") {
  for (const bool causal : {false, true}) {
    const Spec spec{.formula = "backward", .heads = 4, .n = 256, .causal = causal};
    const emulator::Counters &now = counted(rung(), spec), &before = counted(previous(), spec);
    const uint64_t blocks = 4 * 2, tiles = (now.bulk_copies - (2 + 2 * 8) * blocks) / 5;
    const uint64_t numbers_and_turns = 4 * (256 / 32 + 1);  // zeros
    CHECK(now.wgmma == before.wgmma);
    CHECK(now.barriers == before.barriers);
    CHECK(now.bulk_copies == before.bulk_copies);
    CHECK(now.gmem_accesses - before.gmem_accesses == numbers_and_turns + blocks + 2 * 2 * tiles);
    CHECK(now.gmem_bytes_reduced - before.gmem_bytes_reduced == 4 * (blocks + 2 * tiles));
  }
}
