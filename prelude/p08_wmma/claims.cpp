#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "the products move to tensor cores, and S, P and P V through shared memory; nothing else changes at the same "
    "tile") {
  const Tile common{32, 64, 2};
  const emulator::Counters& before = counted(previous(), with_tile(previous(), common));
  const emulator::Counters& after = counted(rung(), with_tile(rung(), common));
  CHECK(before.mma == 0);
  CHECK(after.mma > 0);
  CHECK(traffic(before, "S").requests == 0);
  CHECK(traffic(after, "S", "wmma.store").requests > 0);
  CHECK(traffic(after, "S", "ld.shared").requests > 0);
  CHECK(after.barriers == before.barriers);
  CHECK(after.shuffles == before.shuffles);
  CHECK(after.gmem_bytes_read == before.gmem_bytes_read);
}

CLAIM("the wavefronts that the chapter counts") {
  const emulator::Counters& counters = counted(rung(), FULL);
  CHECK(counters.smem_wavefronts == 771072);
  CHECK(traffic(counters, "Q").wavefronts + traffic(counters, "K").wavefronts == 393216 + 9216);  // loads and stores
  CHECK(traffic(counters, "V").wavefronts == 262144 + 8192);
  CHECK(traffic(counters, "S").wavefronts == 16384 + 65536);  // S, and P V
  CHECK(traffic(counters, "P").wavefronts == 16384);
  const uint64_t ideal = traffic(counters, "S").ideal + traffic(counters, "P").ideal;
  CHECK(counters.smem_wavefronts_ideal == 189440);
  CHECK(double(ideal) / double(counters.smem_wavefronts_ideal) == Approx(0.48).epsilon(0.01));
}
