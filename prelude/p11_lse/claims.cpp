#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("O is that of the rung before to the bit, and the log-sum-exp of each row is all that is written besides") {
  const CheckResult &before = checked(previous()), &after = checked(rung());
  CHECK(rung().variants[0].writes_lse);
  CHECK_FALSE(previous().variants[0].writes_lse);
  CHECK(same_bits(before, after));
  Counts without = counts_of(*after.counters);
  without.gmem_accesses -= uint64_t(SMALL.n);
  without.gmem_bytes_written -= uint64_t(SMALL.n) * 4;
  CHECK(counts_of(*before.counters) == without);
}
