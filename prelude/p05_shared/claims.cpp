#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

constexpr Shape SHAPE{.batch = 1, .heads = 1, .n = 128, .d = 128};

// Bytes of K and V.
uint64_t streamed(const Rung& rung) {
  return counted(rung, SHAPE).gmem_bytes_read - SHAPE.n * SHAPE.d * 2;
}

}  // namespace

CLAIM("the same to the bit as before, and K and V are read once for the 16 queries of a block") {
  CHECK(same_bits(checked(rung(), SHAPE), checked(previous(), SHAPE)));
  CHECK(counted(rung(), SHAPE).shuffles == counted(previous(), SHAPE).shuffles);
  CHECK(streamed(previous()) == 16 * streamed(rung()));
}

CLAIM("bytes from global memory follow the tile's formula, and rows of K and V are read without conflicts") {
  for (const Variant& variant : rung().variants) {
    CHECK(counted(rung(), variant, SHAPE).gmem_bytes_read == bytes_read_by_tile(variant.tile, SHAPE));
  }
  for (const char* region : {"K", "V"}) {
    const Traffic loads = traffic(counted(rung(), SHAPE), region, "ld.shared.v4.b32");
    CHECK(loads.requests > 0);
    CHECK(loads.wavefronts == loads.ideal);
  }
}
