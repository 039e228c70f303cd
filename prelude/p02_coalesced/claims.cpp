#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a warp's load of K takes 128 bytes each of 4 rows; V is read as before") {
  constexpr uint64_t ROW_BYTES = 128 * 2;
  constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 64, .d = 128};
  CHECK(first_blocks_loads(rung(), "K", SHAPE) == Loads{{{512, 3 * ROW_BYTES + 128}, SHAPE.n * 128 / 256}});
  CHECK(first_blocks_loads(rung(), "V", SHAPE) == first_blocks_loads(previous(), "V", SHAPE));
}

CLAIM("a row of scores stays in shared memory, and a block's warps meet twice") {
  constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 70, .d = 128};
  CHECK(counted(rung(), SHAPE).gmem_bytes_written == uint64_t(SHAPE.n * 128 * 2));
  CHECK(counted(rung(), SHAPE).barriers == uint64_t(2 * SHAPE.n));
  CHECK_FALSE(supports(rung(), rung().variants[0], {.n = 65536}));
}
