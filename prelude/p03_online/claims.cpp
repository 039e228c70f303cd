#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("the same bytes are read, a block's warps meet once, and no length is too much") {
  constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 70, .d = 128};
  CHECK(counted(rung(), SHAPE).gmem_bytes_written == uint64_t(SHAPE.n * 128 * 2));
  CHECK(counted(rung(), SHAPE).barriers == uint64_t(SHAPE.n));
  constexpr Shape EVEN{.batch = 1, .heads = 1, .n = 64, .d = 128};
  CHECK(counted(rung(), EVEN).gmem_bytes_read == counted(previous(), EVEN).gmem_bytes_read);
  CHECK(supports(rung(), rung().variants[0], {.n = 65536}));
  CHECK_FALSE(supports(previous(), previous().variants[0], {.n = 65536}));
}
