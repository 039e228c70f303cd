#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec few_queries(int batch, int n_k) {
  return {.batch = batch,
          .heads = 16,
          .kv_heads = 1,
          .n = 4,
          .n_k = n_k,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("of 64 rows nobody reads a key twice, where it was twice, and a tile of keys takes twelve products") {
  const uint64_t blocks = 300, rows = 64, row_bytes = 128 * 2;  // more than find a place at once: a share each
  for (const int n_k : {128, 1024}) {
    const auto &found = counted(rung(), few_queries(blocks, n_k)),
               &before = counted(previous(), few_queries(blocks, n_k));
    CHECK(found.gmem_bytes_read == blocks * (2 * n_k + rows) * row_bytes);
    CHECK(before.gmem_bytes_read >= blocks * (4 * n_k + rows) * row_bytes);
    CHECK(found.wgmma == blocks * n_k / 64 * 12);
    CHECK(found.mma == 0);
  }
}
