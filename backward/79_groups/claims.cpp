#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "as many products, with less than three quarters of the ldmatrix, and half of the bytes are added to the sum of "
    "dQ") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  const emulator::Counters &now = counted(rung(), spec), &before = counted(previous(), spec);
  CHECK(now.mma == before.mma);
  CHECK(4 * now.ldmatrix < 3 * before.ldmatrix);
  CHECK(now.smem_wavefronts < before.smem_wavefronts);
  CHECK(2 * now.gmem_bytes_reduced == before.gmem_bytes_reduced);
}
