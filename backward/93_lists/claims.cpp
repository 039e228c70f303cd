#include "harness/tests/stages/claims.hpp"
#include "backward/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

uint64_t products(const char* words) {
  return counts_of(counted(rung(), asked(words))).wgmma;
}

}  // namespace

CLAIM("without lists the same tiles meet as before") {
  for (const char* words : {"b=2 h=4 kv=2 n=200", "h=2 n=500 causal", "h=2 nq=300 nk=500 causal window=100,0"})
    CHECK(products(words) == counts_of(counted(previous(), asked(words))).wgmma);
}

CLAIM("blocks that are in no list are neither copied nor multiplied, and of 64 keys both halves are") {
  const uint64_t tile = products("n=128 blocks=1");  // two tiles of 64 queries
  CHECK(products("n=512 blocks=1") == 16 * tile);
  CHECK(products("n=512 causal blocks=1") == 10 * tile);
  CHECK(products("n=512 blocks=0.0001") == 0);
  CHECK(products("n=512 blocks=1 block_keys=64") == 16 * tile);
}

CLAIM("whole blocks bring no stencils") {
  const auto read = [](const char* words) { return counted(rung(), asked(words)).gmem_bytes_read; };
  // Of 16 blocks in part two tiles of 64 queries each, and which stencils they are.
  CHECK(read("n=512 blocks=1") + 16 * 2 * (1024 + 4) == read("n=512 blocks=1 partial=1"));
}
