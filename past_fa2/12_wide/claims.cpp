#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a tile of K and V serves twice the queries") {
  const auto streamed = [](const Rung& rung) {
    return counted(rung).gmem_bytes_read - SMALL.n * SMALL.d * 2;  // without Q
  };
  CHECK(streamed(previous()) == 2 * streamed(rung()));
  for (const Variant& variant : rung().variants) {
    CHECK(counted(rung(), variant).gmem_bytes_read == bytes_read_by_tile(variant.tile, SMALL));
  }
}

CLAIM("copies go on under the products as before") {
  CHECK(mma_under_copies(rung()) == mma_under_copies(previous()));
}

CLAIM("O is rescaled in the tiles in which it was before") {
  CHECK(rescaled_tiles(rung(), 3.0f) == rescaled_tiles(previous(), 3.0f));
}
