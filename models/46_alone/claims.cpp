#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(int left) {
  return {.heads = 1,
          .n = 1024,
          .d = 128,
          .causal = true,
          .left = left,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("without a window every count is as before, and every bit of O") {
  CHECK(counts_of(counted(rung(), spec_of(-1))) == counts_of(counted(previous(), spec_of(-1))));
  CHECK(same_bits(checked(rung(), spec_of(-1)), checked(previous(), spec_of(-1))));
}

CLAIM("in a window blocks multiply as much as before, and read more") {
  const Counts alone = counted(rung(), spec_of(256)), shared = counted(previous(), spec_of(256));
  CHECK(alone.wgmma == shared.wgmma);
  CHECK(alone.gmem_bytes_read > shared.gmem_bytes_read);
  CHECK(same_bits(checked(rung(), spec_of(256)), checked(previous(), spec_of(256))));
}
