#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec few_queries(int batch, int n_k) {
  return {.batch = batch,
          .heads = 4,
          .kv_heads = 1,
          .n = 16,
          .n_k = n_k,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("a pair of blocks leaves nothing but O in the card's memory, and of 64 rows each joins half") {
  const Spec spec = few_queries(1, 256);  // two steps of 128 keys
  const uint64_t O_bytes = 64 * 128 * 2, LSE_bytes = 64 * 4;
  CHECK(rung().workspace_at(spec) == 0);
  const auto& found = counted(rung(), spec);
  CHECK(found.gmem_bytes_written == O_bytes + LSE_bytes);
  CHECK(found.idle_blocks == 0);
  CHECK(found.wgmma == 4 * 12);
  CHECK(found.mma == 0);
}

CLAIM("of more shares there are no pairs: a second launch joins them") {
  CHECK(rung().workspace_at(few_queries(1, 1024)) >= 8 * 64 * 130 * 4);
}
