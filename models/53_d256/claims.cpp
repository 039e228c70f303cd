#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 2,
          .n = 512,
          .d = 256,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("a pair shares its tiles by panels, those that one block lets pass, too") {
  const Counts counts = counted(rung(), usual());
  // Two pairs a head; queries once, and keys and values of the first 256 and of all 512 rows.
  CHECK(counts.gmem_bytes_read == 2 * (512 + 2 * (256 + 512)) * 256 * 2);
}

CLAIM("memory for one Q and four tiles is full") {
  CHECK(counted(rung(), usual()).unused_smem_bytes == 0);
}
