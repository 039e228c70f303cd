#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("five products instead of seven, and each pair of tiles adds 32 KiB to the sum of dQ") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  const emulator::Counters &now = counted(rung(), spec), &before = counted(previous(), spec);
  CHECK(7 * now.mma == 5 * before.mma);
  CHECK(2 * now.exponentials == before.exponentials);
  CHECK(now.gmem_bytes_reduced == 4 * 4 * 32 * 1024);
}
