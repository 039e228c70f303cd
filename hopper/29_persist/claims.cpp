#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {
constexpr Shape SEVERAL{.batch = 1, .heads = 3, .n = 512, .d = 128};  // 12 tiles of queries: three for each block
}

CLAIM("there are as many blocks as SMs, whatever there is to do") {
  CHECK(counted(rung(), SEVERAL).blocks == emulator::MULTIPROCESSORS);
  CHECK(counted(previous(), SEVERAL).blocks == 12);
}

CLAIM("every count is as before but that of barriers, and every bit of O") {
  Counts now = counts_of(counted(rung(), SEVERAL));
  const Counts before = counts_of(counted(previous(), SEVERAL));
  CHECK(before.barriers - now.barriers == 12 - emulator::MULTIPROCESSORS);
  now.barriers = before.barriers;
  CHECK(now == before);
  CHECK(same_bits(checked(rung(), SEVERAL), checked(previous(), SEVERAL)));
}
