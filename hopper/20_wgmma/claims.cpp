#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("no fragment is loaded any more, and every multiplication is a warpgroup's") {
  const emulator::Counters &now = counted(rung()), &before = counted(previous());
  CHECK(before.ldmatrix > 0);
  CHECK(now.ldmatrix == 0);
  CHECK(now.mma == 0);
  constexpr uint64_t FLOPS_PER_MMA = 2 * 16 * 8 * 16;
  CHECK(now.wgmma_flops == before.mma * FLOPS_PER_MMA);
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
