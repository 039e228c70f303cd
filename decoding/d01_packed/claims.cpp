#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec one_query(int kv_heads) {
  return {.heads = 8,
          .kv_heads = kv_heads,
          .n = 1,
          .n_k = 512,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("keys and values are read once for each head of theirs, however many heads of queries share it") {
  for (const int kv_heads : {1, 2, 8}) {
    const uint64_t queries = 8, read = counted(rung(), one_query(kv_heads)).gmem_bytes_read;
    CHECK(read == (queries + 2 * 512 * static_cast<uint64_t>(kv_heads)) * 128 * 2);
  }
}

CLAIM("of a tile's 64 rows those of a group are somebody's: more heads in it cost no product more") {
  CHECK(counted(rung(), one_query(1)).wgmma * 8 == counted(rung(), one_query(8)).wgmma);
}
