#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec of(int n, bool causal) {
  return {.formula = "backward", .heads = 1, .n = n, .causal = causal};
}

}  // namespace

CLAIM("each block asks for half of what lands in its shared memory, of Q and dO") {
  const emulator::Counters &now = counted(rung(), of(512, false)), &before = counted(previous(), of(512, false));
  CHECK(before.gmem_bytes_read - now.gmem_bytes_read == 4 * 8 * 16 * 1024);  // blocks, tiles
  CHECK(now.multicast_bytes == 4 * 8 * 32 * 1024);
  CHECK(now.wgmma == before.wgmma);
}

CLAIM("under a mask the second block of a pair lets two tiles pass") {
  const emulator::Counters &now = counted(rung(), of(512, true)), &before = counted(previous(), of(512, true));
  CHECK(now.bulk_copies - before.bulk_copies == 2 * 2 * 3);  // pairs, tiles, copies
  CHECK(now.wgmma == before.wgmma);
}

CLAIM("where a head has an odd number of blocks, one has nothing to store") {
  CHECK(counted(rung(), of(384, false)).idle_blocks == 1);
}
