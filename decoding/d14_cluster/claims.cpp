#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec few_queries(int batch, int n_k) {
  return {.batch = batch,
          .heads = 4,
          .kv_heads = 1,
          .n = 1,
          .n_k = n_k,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("up to eight shares leave nothing but O in the card's memory") {
  const Spec spec = few_queries(1, 1024);  // eight steps of 128 keys
  const uint64_t O_bytes = 4 * 128 * 2, LSE_bytes = 4 * 4;
  CHECK(rung().workspace_at(spec) == 0);
  CHECK(previous().workspace_at(spec) >= 8 * 4 * 130 * 4);
  CHECK(counted(rung(), spec).gmem_bytes_written == O_bytes + LSE_bytes);
  CHECK(counted(previous(), spec).gmem_bytes_written >=
        O_bytes + LSE_bytes + 4 * 4 * 130 * 4);  // four shares on four SMs
}
