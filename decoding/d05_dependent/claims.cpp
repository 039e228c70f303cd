#include "harness/tests/stages/claims.hpp"
#include "decoding/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("one text has a share on each SM, where it had two, and leaves half as much to join") {
  const uint64_t SMS = 4, rows = 4, part = rows * (128 + 2) * 4, result = rows * (128 * 2 + 4);  // O and LSE
  CHECK(counted(rung(), one_query(1, 4096)).gmem_bytes_written == SMS * part + result);
  CHECK(counted(previous(), one_query(1, 4096)).gmem_bytes_written == 2 * SMS * part + result);
}
