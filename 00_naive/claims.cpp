#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("O(n^2) bytes are moved: twice the length, four times the bytes") {
  const auto bytes = [](int n) { return double(counted(rung(), {.n = n}).gmem_bytes_read); };
  CHECK(bytes(128) / bytes(64) == Approx(4.0).epsilon(0.01));
}
