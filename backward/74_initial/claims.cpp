#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("S and dP begin with numbers, in every tile but a block's first: nothing else that is counted changes") {
  const Spec spec{.formula = "backward", .heads = 2, .n = 256};
  auto now = counts_of(counted(rung(), spec));
  const auto before = counts_of(counted(previous(), spec));
  CHECK(now.corrections_at_rest == uint64_t{2 * 2 * 3 * 256 * 2});  // heads, blocks, tiles, threads, S and dP
  now.corrections_at_rest = 0;
  CHECK(now == before);
}
