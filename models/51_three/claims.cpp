#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 2,
          .n = 768,
          .d = 64,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("a block brings all of its keys and values by itself") {
  const Counts counts = counted(rung(), usual());
  // Four tiles of 192 queries a head, which see the first 256, 384, 640 and 768 keys in tiles of 128.
  CHECK(counts.gmem_bytes_read == 2 * (768 + 2 * (256 + 384 + 640 + 768)) * 64 * 2);
  CHECK(counts.multicast_bytes == 0);
}
