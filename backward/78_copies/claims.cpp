#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM(
    "all products of a tile run under the copies for the next, two barriers are left of three, and the same bytes are "
    "added") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  const emulator::Counters &now = counted(rung(), spec), &before = counted(previous(), spec);
  constexpr uint64_t TILES = 4 * 4, FIRST = 4, COPIES_OF_A_TILE = 64 * (16 + 16) + 32;
  CHECK(now.products_under_copies == (TILES - FIRST) * COPIES_OF_A_TILE * now.mma / (TILES * 4));
  CHECK(before.products_under_copies == 0);
  CHECK(3 * now.barriers == 2 * before.barriers);
  CHECK(now.gmem_bytes_reduced == before.gmem_bytes_reduced);
}
