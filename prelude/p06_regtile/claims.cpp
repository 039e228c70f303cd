#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 128, .d = 128};

// Bytes of K and V.
uint64_t streamed(const Rung& rung) {
  return counted(rung, SHAPE).gmem_bytes_read - SHAPE.n * SHAPE.d * 2;
}

uint64_t loads(const Rung& rung) {
  return traffic(counted(rung, SHAPE), "K", "ld.shared.v4.b32").requests +
         traffic(counted(rung, SHAPE), "V", "ld.shared.v4.b32").requests;
}

}  // namespace

CLAIM("the same to the bit as before; a value that is read serves four products, and a tile four times the queries") {
  CHECK(same_bits(checked(rung(), SHAPE), checked(previous(), SHAPE)));
  CHECK(counted(rung(), SHAPE).shuffles == counted(previous(), SHAPE).shuffles);
  CHECK(streamed(previous()) == 4 * streamed(rung()));
  CHECK(loads(rung()) > 0);
  CHECK(loads(previous()) == 4 * loads(rung()));
}
