#include "harness/tests/stages/claims.hpp"

using namespace ladder;
using namespace ladder::claims;

namespace {

Spec spec_of(bool causal) {
  return {.batch = 3,
          .heads = 2,
          .n = 500,
          .d = 128,
          .causal = causal,
          .q_type = Element::bf16,
          .kv_type = Element::bf16,
          .o_type = Element::bf16};
}

}  // namespace

CLAIM("where all sequences have one length every count is as before, and every bit of O") {
  for (const bool causal : {false, true}) {
    CHECK(counts_of(counted(rung(), spec_of(causal))) == counts_of(counted(previous(), spec_of(causal))));
    CHECK(same_bits(checked(rung(), spec_of(causal)), checked(previous(), spec_of(causal))));
  }
}

CLAIM("padding is neither copied nor computed") {
  Spec spec = spec_of(true);
  const Counts padded = counted(rung(), spec);
  spec.lens_q = spec.lens_k = {.count = 3, .of = {500, 100, 60}};
  const Counts packed = counted(rung(), spec);
  CHECK(packed.wgmma < padded.wgmma / 2);
  CHECK(packed.gmem_bytes_read < padded.gmem_bytes_read / 2);
}
