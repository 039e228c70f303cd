#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("a block has two barriers, however many keys its warps read, and nobody reads a key twice") {
  const uint64_t blocks = 300, rows = 4 * 128 * 2;  // more than find a place at once: a share each
  for (const int n_k : {128, 1024}) {
    const auto found = counted(rung(), one_query(blocks, n_k));
    CHECK(found.barriers == 2 * blocks);
    CHECK(found.gmem_bytes_read == blocks * (2 * n_k * 128 * 2 + 4 * rows));
  }
}
