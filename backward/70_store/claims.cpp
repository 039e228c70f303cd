#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("what threads store of dK and dV, 4 bytes at a time, is stored by the copy engine, 4 KiB at a time") {
  const Spec spec{.formula = "backward", .heads = 1, .n = 256};
  const Counts now = counts_of(counted(rung(), spec)), before = counts_of(counted(previous(), spec));
  constexpr uint64_t BYTES = 2 * 256 * 128 * 2;  // dK and dV, 256 keys
  CHECK(now.gmem_bytes_written == before.gmem_bytes_written);
  CHECK(before.gmem_accesses - now.gmem_accesses == BYTES / 4);
  CHECK(now.bulk_copies - before.bulk_copies == BYTES / 4096);
  CHECK(now.barriers - before.barriers == 2);  // of two blocks
}
