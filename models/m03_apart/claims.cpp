#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec usual() {
  return {.heads = 4,
          .n = 512,
          .d = 256,
          .causal = true,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("every bit of O is as before") {
  for (const bool causal : {false, true}) {
    Spec spec = usual();
    spec.causal = causal;
    CHECK(same_bits(checked(rung(), spec), checked(previous(), spec)));
  }
}

CLAIM("under a mask nobody waits for a tile that it does not need, nor for another block at the end") {
  const auto now = counted(rung(), usual()), before = counted(previous(), usual());
  CHECK(now.wgmma == before.wgmma);
  CHECK(now.barriers < before.barriers);
  CHECK(now.gmem_bytes_read > before.gmem_bytes_read);  // what was brought to both
}

CLAIM("memory for one Q, half an O and four tiles is full") {
  CHECK(counted(rung(), usual()).unused_smem_bytes == 0);
}
