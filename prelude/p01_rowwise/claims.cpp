#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the scores stay on the chip: only O is written, whatever the length") {
  for (const int n : {7, 17, 70}) {
    const Shape shape{.batch = 1, .heads = 1, .n = n, .d = 128};
    CHECK(counted(rung(), shape).gmem_bytes_written == uint64_t(n * 128 * 2));
    CHECK(counted(previous(), shape).gmem_bytes_written > uint64_t(n * n * 4));
  }
}

CLAIM("a warp's load of K takes 2 bytes each of 32 rows, and of V 64 neighbouring bytes") {
  constexpr uint64_t ROW_BYTES = 128 * 2;
  constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 64, .d = 128};
  CHECK(first_blocks_loads(rung(), "K", SHAPE) == Loads{{{64, 31 * ROW_BYTES + 2}, SHAPE.n * 128 / 32}});
  CHECK(first_blocks_loads(rung(), "V", SHAPE) == Loads{{{64, 64}, SHAPE.n * 128 / 32}});
}
