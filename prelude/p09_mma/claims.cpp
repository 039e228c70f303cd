#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("S, P and P V leave shared memory, and nothing else does") {
  const emulator::Counters &before = counted(previous(), FULL), &after = counted(rung(), FULL);
  const Traffic S = traffic(before, "S"), P = traffic(before, "P");
  CHECK(S.wavefronts > 0);
  CHECK(P.wavefronts > 0);
  CHECK(traffic(after, "S").requests + traffic(after, "P").requests == 0);
  CHECK(after.smem_wavefronts == 672768);  // the chapter's figure
  CHECK(after.smem_wavefronts == before.smem_wavefronts - S.wavefronts - P.wavefronts);
  CHECK(after.smem_wavefronts_ideal == before.smem_wavefronts_ideal - S.ideal - P.ideal);
  CHECK(after.mma == before.mma);
}
