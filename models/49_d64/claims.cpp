#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 2,
          .n = 512,
          .d = 64,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("of a pair each block brings half of the rows: K and V are read once for both") {
  const Counts counts = counted(rung(), usual());
  // Two pairs a head; queries once, and keys and values of the first 256 and of all 512 rows.
  CHECK(counts.gmem_bytes_read == 2 * (512 + 2 * (256 + 512)) * 64 * 2);
}
