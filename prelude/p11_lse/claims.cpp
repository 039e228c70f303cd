#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

CLAIM("beside O the log-sum-exp of each row is all that is written; reads of Q meet in a bank, in pairs") {
  const CheckResult &before = checked(previous()), &after = checked(rung());
  CHECK(rung().variants[0].writes_lse);
  CHECK_FALSE(previous().variants[0].writes_lse);
  Counts without = counts_of(*after.counters);
  without.gmem_accesses -= uint64_t(SMALL.n);
  without.gmem_bytes_written -= uint64_t(SMALL.n) * 4;
  without.conflicts -= uint64_t(SMALL.n / 16) * (SMALL.n / 64) * 128;
  CHECK(counts_of(*before.counters) == without);
}
